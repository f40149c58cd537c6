"""An artifact on disk.

In: a folder. Out: its manifest, rows and facts, as `inspect` and `check` need them.
Read first: `artifact`.
"""
