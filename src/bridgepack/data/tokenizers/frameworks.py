"""Imports transformers without the frameworks that it imports if installed, which tokenizers do not need."""

import functools
import importlib.metadata
import sys
from typing import Any

#: Importing one takes seconds and hundreds of megabytes.
_NOT_NEEDED = ("torch", "tensorflow", "flax", "jax")


def hide_frameworks() -> None:
    """Make imports of frameworks fail as if they were not installed; only for processes that make tokens."""
    for name in _NOT_NEEDED:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]


class _NamedAlike(dict[str, list[str]]):
    """Package -> distributions, each named like its package, because reading all metadata is slower than the import."""

    def __missing__(self, package: str) -> list[str]:
        return [package]


def import_transformers() -> None:
    """Import transformers' tokenizers, in a process that loads no models; frameworks can still be imported later."""
    from bridgepack.data.tokenizers.load import quiet_transformers

    modules, read, cache = set(sys.modules), importlib.metadata.packages_distributions, functools.lru_cache

    def keeping_all(maxsize: Any = 128, *flags: Any, **options: Any) -> Any:
        """Return `lru_cache` without its limit of 128, for which transformers reads the files of 480 models twice."""
        return cache(None)(maxsize) if callable(maxsize) else cache(maxsize, *flags, **options)

    quiet_transformers()
    hide_frameworks()
    importlib.metadata.packages_distributions, functools.lru_cache = _NamedAlike, keeping_all
    try:
        from transformers import AutoTokenizer, PreTrainedTokenizerFast  # noqa: F401
    finally:
        importlib.metadata.packages_distributions, functools.lru_cache = read, cache
        for name in set(sys.modules) - modules:
            if sys.modules[name] is None:
                del sys.modules[name]
