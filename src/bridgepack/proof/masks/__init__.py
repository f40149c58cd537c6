"""Compares loss masks with independent derivations of them, from rows that `rows` reads by itself.

In: rows with the tokens and masks that a build makes of them. Out: for each row, whether its mask matches the
template's text, and why not. Read first: `masks`, then `chats` and `votes`.
"""
