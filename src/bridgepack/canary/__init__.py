"""Shows that packed training computes what unpacked training computes, with the host's own training step.

The package can be called: `bridgepack.canary("recipe.yaml")` is `bridgepack.api.canary`.

In: an artifact or a recipe. Out: a report of losses and gradients in each layout, and the name of what is wrong.
Read first: `canary`, then `comparison` and `step`.
"""

import sys
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    """The package, so that `bridgepack.canary` is the function and the home of the modules."""

    def __call__(self, target: Any, **options: Any) -> Any:
        """Return what packed and unpacked training of a target compute, as `bridgepack.api.canary`."""
        from bridgepack.canary.canary import canary  # it imports this package

        return canary(target, **options)


sys.modules[__name__].__class__ = _CallableModule
