"""Tokenizers, chat templates, and the engines that encode texts.

In: the name or folder of a tokenizer. Out: a `ChatTokenizer`, and an engine that returns the same ids faster.
Read first: `load`, then `tokenizer`.
"""
