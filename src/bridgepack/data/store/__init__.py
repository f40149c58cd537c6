"""The token store: tokens of input ranges, shared by recipes, topologies and builds.

In: a range's key and its sequences. Out: the same sequences for the same key, memory-mapped.
Read first: `store`, then `token_file`.
"""
