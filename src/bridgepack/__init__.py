"""bridgepack: packed SFT datasets for NVIDIA Megatron-Bridge, built exactly and checked before training."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridgepack.api import (
        build,
        canary,
        check,
        diff,
        explain,
        forward_step_for,
        inspect,
        load_recipe,
        masks,
        pack_for,
        plan,
        preview,
        repack,
        report,
        to_bridge,
        trace,
        verify,
    )
    from bridgepack.config.recipe.recipe import SFTRecipe
    from bridgepack.launch import launch

__version__ = "0.1.0"
__all__ = [
    "SFTRecipe",
    "__version__",
    "build",
    "canary",
    "check",
    "diff",
    "explain",
    "forward_step_for",
    "inspect",
    "launch",
    "load_recipe",
    "masks",
    "pack_for",
    "plan",
    "preview",
    "repack",
    "report",
    "to_bridge",
    "trace",
    "verify",
]
#: Packages of the same name as a command, which can be called.
_CALLED_PACKAGES = ("canary", "launch", "report")


def __dir__() -> list[str]:
    """Return the public names, those that are not imported yet among them."""
    return __all__


def __getattr__(name: str) -> Any:
    """Import public names on first use, so that `import bridgepack` stays light.

    Raises:
        AttributeError: for any other name.
    """
    if name in _CALLED_PACKAGES:
        return import_module(f"bridgepack.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'bridgepack' has no attribute {name!r}")
    home = "bridgepack.config.recipe.recipe" if name == "SFTRecipe" else "bridgepack.api"
    return getattr(import_module(home), name)


def make_callable(package: str, home: str) -> None:
    """Make a package also the function of its name, which the module `home` defines: `bridgepack.report(...)`."""

    def function() -> Any:
        return getattr(import_module(home), package.rpartition(".")[2])

    class CallablePackage(ModuleType):
        def __call__(self, *arguments: Any, **options: Any) -> Any:
            from bridgepack.config.arguments import bound  # slow to import

            bound(function(), arguments, options)
            return function()(*arguments, **options)

        @property
        def __signature__(self) -> Any:
            import inspect

            return inspect.signature(function())

    sys.modules[package].__class__ = CallablePackage
