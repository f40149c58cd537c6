"""Rules on packed artifacts.

In: rows, shards, the manifest and the host's metadata. Out: findings.
Read first: `structure`, which decides which rows the other rules can judge.
"""
