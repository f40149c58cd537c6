"""A recipe as a ConfigContainer.

In: a recipe and its packs. Out: the ConfigContainer of the installed Megatron-Bridge, or an error for what it ignores.
Read first: `write`, then `assign`.
"""
