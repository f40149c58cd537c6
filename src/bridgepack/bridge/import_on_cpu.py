"""Imports the real megatron-bridge where TransformerEngine cannot be imported, to read its configs, not to train.

One module that every import of `megatron.bridge` reaches needs TransformerEngine: `peft/lora_layers.py:20`; in earlier
versions there are a few more. They alone see a stand-in while they are executed; for everybody else `import
transformer_engine` keeps failing, so that megatron-core and megatron-bridge know that they have none.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType

from bridgepack.config.installed import installed_root

#: Modules below the host's package that import TransformerEngine without a fallback in some version since 0.3.
NEED_TRANSFORMER_ENGINE = frozenset({"diffusion.models.wan.utils", "peft.lora", "peft.lora_layers"})
_HARD_IMPORT = re.compile(r"^(?:import|from) transformer_engine", re.MULTILINE)


def install_import_hook() -> None:
    """Make the import of the installed host work; does nothing if TransformerEngine can be imported."""
    has_hook = any(isinstance(finder, _Finder) for finder in sys.meta_path)
    if not has_hook and not _has_transformer_engine():
        root = installed_root()
        sys.meta_path.insert(0, _Finder(frozenset(f"{root}.{path}" for path in NEED_TRANSFORMER_ENGINE)))


def _has_transformer_engine() -> bool:
    """Return whether TransformerEngine can be imported; without its shared objects or a driver the import fails."""
    try:
        importlib.import_module("transformer_engine.pytorch")
    # Its loading of shared objects raises these besides ImportError: transformer_engine/common/__init__.py.
    except (ImportError, OSError, RuntimeError, AssertionError):
        return False
    return True


class _Finder(MetaPathFinder):
    """Finds those modules, with a loader that provides the stand-in."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._names:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None and _HARD_IMPORT.search(Path(spec.origin).read_text("utf-8")):
            spec.loader = _Loader(fullname, spec.origin)
        return spec


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        with _stand_in_transformer_engine():
            super().exec_module(module)


class _AnyLayer(type):
    """A class whose attributes are classes without instances: `isinstance(layer, te.Linear)` is always False."""

    def __getattr__(cls, name: str) -> _AnyLayer:
        return _AnyLayer(name, (), {})


@contextmanager
def _stand_in_transformer_engine() -> Iterator[None]:
    package, pytorch = ModuleType("transformer_engine"), ModuleType("transformer_engine.pytorch")
    package.__path__ = []
    package.pytorch = pytorch  # type: ignore[attr-defined]
    pytorch.__getattr__ = lambda name: _AnyLayer(name, (), {})  # type: ignore[method-assign]
    extension = ModuleType("transformer_engine_torch")
    modules = {module.__name__: module for module in (package, pytorch, extension)}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in modules:
            del sys.modules[name]
