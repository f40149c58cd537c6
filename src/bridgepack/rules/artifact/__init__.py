"""Rules on packed artifacts.

In: rows, shards, the manifest and the host's metadata. Out: findings.
Read first: `rows`, which begins with the rules that decide which rows the others can judge.
"""
