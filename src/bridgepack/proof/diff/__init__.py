"""Two artifacts compared.

In: two folders. Out: which sequences, masks, statistics and settings differ.
Read first: `diff`.
"""
