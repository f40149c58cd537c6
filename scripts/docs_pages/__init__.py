"""The generated pages of the documentation; scripts/generate_docs writes them."""
