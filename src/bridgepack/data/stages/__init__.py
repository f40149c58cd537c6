"""The stages of a build, in order.

In: input files and a working folder. Out: tokens in the store, a plan for each split, shards, the ledger, the manifest.
Read first: `tokenise`, then `split` and `write`.
"""
