"""Compares loss masks with independent derivations of them.

In: a recipe's rows, or an artifact. Out: for each row, whether its mask matches the template's text, and why not.
Read first: `masks`, then `chats` and `votes`.
"""
