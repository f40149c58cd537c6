"""Checks some steps of a run during training, and stops it if packs are not computed as packed.

In: the packs of a run and observations of every rank. Out: notices, or an alarm that ends the run.
Read first: `callback`, then `watch`.
"""
