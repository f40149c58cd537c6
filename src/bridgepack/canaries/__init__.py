"""Compares packed training with unpacked training, using the host's own training step.

In: an artifact or a recipe. Out: a report of losses and gradients in each topology, with the names of faults.
Read first: `canary`, then `comparison` and `step`.
"""
