"""Compares trained answers with what a server sends for them and what the model must then write.

In: a rendered conversation with its tokens and mask. Out: for each trained answer, whether a server shows it as it is
trained, and if not, how it differs.
Read first: `compare`, then `renders` and `tokens`.
"""
