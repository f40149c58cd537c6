"""Packed rows <-> Parquet shards.

In: a plan and the store's tokens. Out: shards that the host's loader reads, and rows read from shards.
Read first: `write`, then `row_groups`.
"""
