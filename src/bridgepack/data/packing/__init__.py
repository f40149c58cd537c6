"""Lengths -> a plan of packs; pure functions without I/O.

In: runtime lengths in tokens and a pack's size. Out: a `PackPlan`.
Read first: `plan`; then `balance`, the order of packs.
"""
