"""Adopts a user's own ConfigContainer.

In: a ConfigContainer. Out: the equivalent recipe, or a copy corrected for packed rows, with the changes.
Read first: `adopt`, then `pack_for`.
"""
