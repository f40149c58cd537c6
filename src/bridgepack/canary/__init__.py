"""Shows that packed training computes what unpacked training computes, with the host's own training step.

In: an artifact or a recipe. Out: a report of losses and gradients in each layout, and the name of what is wrong.
Read first: `canary`, then `comparison` and `step`.
"""
