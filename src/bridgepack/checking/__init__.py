"""Checks a target and fixes it.

In: a recipe, a ConfigContainer or an artifact, and options. Out: one report of all rules, and safe changes.
Read first: `check`, the list of its steps, each in a module of its own; then `fix`.
"""
