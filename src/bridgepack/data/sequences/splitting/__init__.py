"""Sequences of a conversation: split into pieces, without old history, with only their own turns trained.

In: a conversation. Out: its rendered sequences.
Read first: `parts`.
"""
