"""Compares an artifact with its sources, and predicts what a run will read.

In: an artifact, its sources or the store, a run's settings. Out: traces, verifications, differences, mask judgements.
Read first: `trace/trace`, then `verify/verify`.
"""
