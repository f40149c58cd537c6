"""Rules on packed artifacts.

In: rows, shards, the manifest and the host's metadata. Out: what is wrong with them.
Read first: `structure`, which says what rows the others can judge.
"""
