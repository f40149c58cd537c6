"""Converts a recipe into a ConfigContainer.

In: a recipe and its packs. Out: the ConfigContainer of the installed Megatron-Bridge, or an error for ignored settings.
Read first: `write`, then `assign`.
"""
