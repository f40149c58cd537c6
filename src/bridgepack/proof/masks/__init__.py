"""Loss masks against independent derivations of them.

In: a recipe's rows, or an artifact. Out: for each row whether its mask is what the template's text says, and why not.
Read first: `masks`, then `chats` and `votes`.
"""
