"""Compares packed training with unpacked training, using the host's own training step.

The package is callable: `bridgepack.canary("recipe.yaml")` calls `bridgepack.api.canary`.

In: an artifact or a recipe. Out: a report of losses and gradients in each layout, with the names of faults.
Read first: `canary`, then `comparison` and `step`.
"""

from bridgepack import make_callable

make_callable(__name__, "bridgepack.canary.canary")
