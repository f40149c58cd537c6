"""Artifacts on disk.

In: a folder. Out: its manifest, rows and facts, for `inspect` and `check`.
Read first: `artifact`.
"""
