"""Imports transformers without the frameworks that it imports where it finds them, and tokenizers do without."""

import functools
import importlib.metadata
import sys
from typing import Any

#: An import of one takes seconds and hundreds of megabytes.
_NOT_NEEDED = ("torch", "tensorflow", "flax", "jax")


def hide_frameworks() -> None:
    """Let every import of a framework fail, as where it is not installed: only for a process that makes tokens."""
    for name in _NOT_NEEDED:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]


class _NamedAlike(dict[str, list[str]]):
    """Distributions by package, each named as its package: reading all metadata would take longer than the import."""

    def __missing__(self, package: str) -> list[str]:
        return [package]


def import_transformers() -> None:
    """Import what loads tokenizers, in a process that loads no model with it; frameworks can be imported afterwards."""
    from bridgepack.data.tokenizers.load import quiet_transformers

    known, read, cached = set(sys.modules), importlib.metadata.packages_distributions, functools.lru_cache

    def keeping_all(maxsize: Any = 128, typed: bool = False) -> Any:
        """Return `lru_cache` without its limit of 128, for which transformers reads the files of 480 models twice."""
        return cached(None)(maxsize) if callable(maxsize) else cached(maxsize, typed)

    quiet_transformers()
    hide_frameworks()
    importlib.metadata.packages_distributions, functools.lru_cache = _NamedAlike, keeping_all
    try:
        from transformers import AutoTokenizer, PreTrainedTokenizerFast  # noqa: F401
    finally:
        importlib.metadata.packages_distributions, functools.lru_cache = read, cached
        for name in set(sys.modules) - known:
            if sys.modules[name] is None:
                del sys.modules[name]
