"""bridgepack: packed SFT datasets for NVIDIA Megatron-Bridge, built exactly and checked before training."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridgepack.api import (
        build,
        check,
        forward_step_for,
        inspect,
        load_recipe,
        pack_for,
        preview,
        repack,
        to_bridge,
        write_report,
    )
    from bridgepack.config.recipe.recipe import SFTRecipe
    from bridgepack.launch import launch

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
    "preview",
    "repack",
    "to_bridge",
    "write_report",
]


def __dir__() -> list[str]:
    """Return the public names, those that are not imported yet among them."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Import public names on first use, so that `import bridgepack` stays light.

    Raises:
        AttributeError: for any other name.
    """
    from importlib import import_module

    if name == "launch":
        return import_module("bridgepack.launch")  # a package that can be called
    if name not in __all__:
        raise AttributeError(f"module 'bridgepack' has no attribute {name!r}")
    home = "bridgepack.config.recipe.recipe" if name == "SFTRecipe" else "bridgepack.api"
    return getattr(import_module(home), name)
