"""Hides frameworks that transformers imports where it finds them, and that tokenizers do without."""

import sys

#: An import of one takes seconds and hundreds of megabytes.
_NOT_NEEDED = ("torch", "tensorflow", "flax", "jax")


def hide_frameworks() -> None:
    """Let every import of a framework fail, as where it is not installed: only for a process that makes tokens."""
    for name in _NOT_NEEDED:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]
