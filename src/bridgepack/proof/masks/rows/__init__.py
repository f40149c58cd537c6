"""Reads rows as the documents of trainers and APIs describe their formats, and shares no code with the build's reading.

In: a row as its file has it, and what a recipe writes about it. Out: a conversation, a pair, a document or tokens; or
why the row cannot be read. Read first: `reader`, then `turns`.
"""
