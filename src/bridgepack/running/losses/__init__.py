"""Losses of a run by source and by row, from the packs as they are; training itself stays bit for bit what it is.

In: each micro batch as the host reads it, and the losses of its tokens. Out: a line per source and interval in the
run's folder, values in the host's trackers.
Read first: `callback`, then `packs`.
"""
