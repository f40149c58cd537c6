"""bridgepack: packed SFT datasets for NVIDIA Megatron-Bridge, built exactly and checked before training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridgepack.api import build, check, forward_step_for, inspect, load_recipe, pack_for, to_bridge
    from bridgepack.config.recipe.recipe import SFTRecipe
    from bridgepack.launch.api import launch

__version__ = "0.1.0"
__all__ = [
    "SFTRecipe",
    "__version__",
    "build",
    "check",
    "forward_step_for",
    "inspect",
    "launch",
    "load_recipe",
    "pack_for",
    "to_bridge",
]

_HOMES = {
    "SFTRecipe": "bridgepack.config.recipe.recipe",
    "build": "bridgepack.api",
    "check": "bridgepack.api",
    "forward_step_for": "bridgepack.api",
    "inspect": "bridgepack.api",
    "load_recipe": "bridgepack.api",
    "pack_for": "bridgepack.api",
    "to_bridge": "bridgepack.api",
}


def __getattr__(name: str) -> Any:
    """Import public names on first use, so that `import bridgepack` stays light.

    Raises:
        AttributeError: for any other name.
    """
    from importlib import import_module

    if name == "launch":
        return import_module("bridgepack.launch")  # a package that can be called
    if name not in _HOMES:
        raise AttributeError(f"module 'bridgepack' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
