"""Packed rows <-> Parquet shards.

In: a plan and the store's tokens. Out: shards that the host's loader reads; and their rows again.
Read first: `assembly`, then `write` and `row_groups`.
"""
