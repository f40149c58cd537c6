"""Compares what rows train with what a server sends and a model must then write.

In: a recipe's rows, or an artifact. Out: for each trained answer its kind, and the first answers that differ.
Read first: `served`; `data/served` compares one conversation.
"""
