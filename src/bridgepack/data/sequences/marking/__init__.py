"""What the markers of turns are: families of templates, and the tokens that a tokenizer and its template show.

In: a tokenizer with its chat template, and the texts of markers. Out: tokens, and errors about markers that cannot be
found. Read first: `families`, then `tokens`.
"""
