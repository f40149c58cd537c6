"""Predicts what the host feeds the model: batches, slices, and the order of packs on every rank.

In: packs and a run's settings, as values. Out: the host's batches and orders, number for number, without the host.
Read first: `order`, then `collate` and `slicing`.
"""
