"""A ConfigContainer of a user's own.

In: a ConfigContainer. Out: the recipe that it amounts to, or a copy corrected for packed rows, with what was changed.
Read first: `adopt`, then `pack_for`.
"""
