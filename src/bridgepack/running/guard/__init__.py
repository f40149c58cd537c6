"""Looks on at some steps of a run, and stops it when packed rows are not computed as such.

In: the packs of a run and what every rank computes. Out: notices, or an alarm that ends the run.
Read first: `callback`, then `watch`.
"""
