"""Files that are whole or not there: written to a temporary name, synced, renamed, and the folder synced."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replaced_when_whole(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; rename it to `path` once the block ends without an error."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        yield temporary
        sync_file(temporary)
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a whole UTF-8 file, or none."""
    with replaced_when_whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sync_file(path: Path) -> None:
    """Make a file's bytes durable."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def sync_folder(folder: Path) -> None:
    """Make a folder's entries durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
