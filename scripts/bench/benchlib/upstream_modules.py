"""Modules of the real megatron-bridge."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

_PACKAGES = ("megatron.bridge", "megatron.bridge.data", "megatron.bridge.data.packing", "megatron.bridge.utils")


def packing_algorithms() -> ModuleType:
    """Return `megatron.bridge.data.packing.algorithms`, as it is in the wheel.

    The packages around it run no code of theirs, which would import the whole framework: 20 seconds.
    """
    found = importlib.util.find_spec("megatron")
    assert found is not None
    assert found.submodule_search_locations is not None
    roots = [Path(place) for place in found.submodule_search_locations]
    for name in _PACKAGES:
        package = ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:])) for root in roots]
        sys.modules[name] = package
    return importlib.import_module("megatron.bridge.data.packing.algorithms")


def install() -> None:
    """Make `import megatron.bridge` work without a GPU."""
    from bridgepack.bridge.import_on_cpu import install_import_hook

    install_import_hook()
