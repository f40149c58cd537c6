"""Builds artifacts: reading -> sequences -> store -> packing -> shards -> artifact.

In: a resolved recipe. Out: a folder of packed shards with its manifest, and the tokens in the store.
Read first: `build`, then `stages/tokenise` and `stages/write`.
"""
