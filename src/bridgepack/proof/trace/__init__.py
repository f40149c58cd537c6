"""From a step to ranks, packs, sequences and source rows, and back.

In: an artifact and a run. Out: what each rank reads, and where a source row went.
Read first: `trace`.
"""
