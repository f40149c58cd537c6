"""Rows without a chat template -> tokens and loss masks: plain documents, and rows that hold tokens.

In: rows as layouts read them. Out: uncut sequences as flat arrays, and a reason for each row that gives none.
Read first: `documents`.
"""
