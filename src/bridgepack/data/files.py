"""Files that are whole or not there: written to a temporary name, synced, renamed, and the folder synced."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Ends the name of a file that is not whole yet; one that is left behind belongs to a process that was killed.
TEMPORARY_SUFFIX = ".tmp"


@contextmanager
def replaced_when_whole(path: Path, *, is_shared: bool = False) -> Iterator[Path]:
    """Give a temporary path beside `path`; rename it to `path` once the block ends without an error.

    `is_shared`: other processes may be writing the same file; each gets a temporary path of its own.
    """
    mark = f".{os.getpid()}-{secrets.token_hex(4)}" if is_shared else ""
    temporary = path.with_name(f".{path.name}{mark}{TEMPORARY_SUFFIX}")
    try:
        yield temporary
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        error.filename = error.filename or str(path)  # writing to an open file tells no name
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str, *, is_shared: bool = False) -> None:
    """Write a whole UTF-8 file, or none."""
    with replaced_when_whole(path, is_shared=is_shared) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sync_folder(folder: Path) -> None:
    """Make a folder's entries durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def nearest_folder(place: Path) -> Path:
    """Return a place, or of what lies around it the nearest that exists."""
    return next(path for path in (place, *place.parents) if path.exists())


def make_folders(folder: Path) -> None:
    """Make a folder and those around it; their entries are durable afterwards."""
    if not folder.is_dir():
        make_folders(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)
