"""Traces a step to its ranks, packs, sequences and input rows, and back.

In: an artifact and a run. Out: what each rank reads, and where an input row went.
Read first: `trace`.
"""
