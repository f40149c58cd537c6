"""Adopts a user's own ConfigContainer.

In: a ConfigContainer. Out: the equivalent recipe, or a copy corrected for packs, with the changes.
Read first: `adopt`, then `pack_for`.
"""
