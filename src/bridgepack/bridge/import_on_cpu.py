"""Imports the real megatron-bridge on a machine without TransformerEngine, to read its configs, not to train.

One module that every import of `megatron.bridge` reaches needs TransformerEngine: `peft/lora_layers.py:20`. It alone
sees a stand-in while it is executed; for everybody else `import transformer_engine` keeps failing, so that
megatron-core and megatron-bridge know that they have none.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType

NEEDS_TRANSFORMER_ENGINE = "megatron.bridge.peft.lora_layers"


def install_import_hook() -> None:
    """Make `import megatron.bridge` work; does nothing where TransformerEngine is installed."""
    has_hook = any(isinstance(finder, _Finder) for finder in sys.meta_path)
    if not has_hook and importlib.util.find_spec("transformer_engine") is None:
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds the one module, with a loader that gives it the stand-in."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != NEEDS_TRANSFORMER_ENGINE:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin)
        return spec


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        with _stand_in_transformer_engine():
            super().exec_module(module)


class _AnyLayer(type):
    """A class whose every attribute is a class nothing is an instance of: `isinstance(layer, te.Linear)` is False."""

    def __getattr__(cls, name: str) -> _AnyLayer:
        return _AnyLayer(name, (), {})


@contextmanager
def _stand_in_transformer_engine() -> Iterator[None]:
    package, pytorch = ModuleType("transformer_engine"), ModuleType("transformer_engine.pytorch")
    package.__path__ = []
    package.pytorch = pytorch  # type: ignore[attr-defined]
    pytorch.__getattr__ = lambda name: _AnyLayer(name, (), {})  # type: ignore[method-assign]
    modules = {module.__name__: module for module in (package, pytorch)}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in modules:
            del sys.modules[name]
