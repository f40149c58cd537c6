"""One page of HTML for each artifact, which needs no script and no network to be read, and its dataset card.

In: the folder of an artifact, or packs of another tool. Out: the text of a page, or of a card.
Read first: `page`, then `lengths`, `charts` and the templates.
"""
