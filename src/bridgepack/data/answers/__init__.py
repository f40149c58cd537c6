"""Where each answer of a conversation lies in its rendered text, and which tokens that makes.

In: a conversation's messages with the text that the chat template writes of them. Out: segments, in tokens.
Read first: `marking`, then `regions`, then `finder`.
"""
