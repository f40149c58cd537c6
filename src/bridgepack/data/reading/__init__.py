"""Input files -> rows.

In: what a recipe names: files, folders, globs, saved data sets, objects of a store. Out: ranges, and the rows of each.
Read first: `inputs`, then `ranges` and `rows`.
"""
