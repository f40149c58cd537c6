"""One HTML page per artifact, which needs no script and no network.

In: the folder of an artifact, or packs of another tool. Out: the text of a page.
Read first: `page`, then `charts` and the templates.
"""
