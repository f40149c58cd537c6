"""Checks a target and fixes it.

In: a recipe, a ConfigContainer or an artifact, and options. Out: one report of all rules, and safe changes.
Read first: `check`, then `fix`.
"""
