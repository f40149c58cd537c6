"""bridgepack: packed SFT datasets for NVIDIA Megatron-Bridge, built exactly and checked before training."""

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridgepack.api import (
        build,
        check,
        diff,
        explain,
        fix,
        forward_step_for,
        inspect,
        launch,
        list_layouts,
        list_recipes,
        list_store,
        load_recipe,
        losses,
        new_recipe,
        pack_for,
        plan,
        plan_build,
        plan_launch,
        plan_repack,
        preview,
        preview_launch,
        prove,
        prune_store,
        recipe_schema,
        repack,
        report,
        resolve_recipe,
        show_recipe,
        submit_launch,
        to_bridge,
        trace,
        verify_store,
    )
    from bridgepack.config.recipe.recipe import SFTRecipe
    from bridgepack.launching.preflight import PreflightPlugin as PreflightPlugin

__version__ = "0.1.0"
__all__ = [
    "SFTRecipe",
    "__version__",
    "build",
    "check",
    "diff",
    "explain",
    "fix",
    "forward_step_for",
    "inspect",
    "launch",
    "list_layouts",
    "list_recipes",
    "list_store",
    "load_recipe",
    "losses",
    "new_recipe",
    "pack_for",
    "plan",
    "plan_build",
    "plan_launch",
    "plan_repack",
    "preview",
    "preview_launch",
    "prove",
    "prune_store",
    "recipe_schema",
    "repack",
    "report",
    "resolve_recipe",
    "show_recipe",
    "submit_launch",
    "to_bridge",
    "trace",
    "verify_store",
]
#: Public names that `bridgepack.api` does not have -> the module that has them. PreflightPlugin needs nemo-run, so
#: `__all__` leaves it out: `from bridgepack import *` works without.
_HOMES = MappingProxyType(
    {
        "PreflightPlugin": "bridgepack.launching.preflight",
        "SFTRecipe": "bridgepack.config.recipe.recipe",
    }
)


def __dir__() -> list[str]:
    """Return the public names, those that are not imported yet among them."""
    return __all__


def __getattr__(name: str) -> Any:
    """Import public names on first use, so that `import bridgepack` stays light.

    Raises:
        AttributeError: for any other name.
    """
    if name not in __all__ and name not in _HOMES:
        raise AttributeError(f"module 'bridgepack' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "bridgepack.api")), name)
