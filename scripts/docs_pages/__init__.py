"""The pages of the site that come from the code; scripts/site_hook.py gives them to MkDocs."""
