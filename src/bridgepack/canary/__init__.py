"""Compares packed training with unpacked training, using the host's own training step.

The package is callable: `bridgepack.canary("recipe.yaml")` calls `bridgepack.api.canary`.

In: an artifact or a recipe. Out: a report of losses and gradients in each layout, with the names of faults.
Read first: `canary`, then `comparison` and `step`.
"""

import sys
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    """A package that can be called, so that `bridgepack.canary` is both a function and a package."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Return the comparison of packed and unpacked training of a target, as `bridgepack.api.canary`."""
        from bridgepack.canary.canary import canary  # it imports this package

        return canary(*arguments, **options)


sys.modules[__name__].__class__ = _CallableModule
