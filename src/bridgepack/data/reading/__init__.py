"""Input files -> rows.

In: the recipe's sources: files, folders, globs, saved data sets, objects of a store. Out: ranges and their rows.
Read first: `inputs`, then `ranges` and `rows`.
"""
