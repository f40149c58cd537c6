"""Atomic file writes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def open_replacing(path: Path) -> Iterator[TextIO]:
    """Yield a UTF-8 text file with a temporary name; rename it to `path` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
