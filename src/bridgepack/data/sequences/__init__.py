"""Rows -> tokens and loss masks.

In: rows of a range. Out: uncut sequences as flat arrays, and a reason for each row that gives none.
Read first: `encoder`, then `chat` and `trained`.
"""
