"""Predicts what the host feeds the model: batches, slices, and the order of packs on every rank.

In: packs and a run's settings, as values. Out: exactly the host's batches and orders, computed without the host.
Read first: `order`, then `collate` and `slicing`.
"""
