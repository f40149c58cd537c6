"""The token store: tokens of input ranges, shared by recipes, topologies and builds.

In: a range's key and its sequences. Out: the same sequences, memory-mapped, for whoever asks with the same key.
Read first: `store`, then `token_file`.
"""
