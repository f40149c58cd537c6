"""A build's working folder beside its output: locked, cleaned up, and moved into place as a whole."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bridgepack.data.files import sync_folder
from bridgepack.data.manifest import MANIFEST_FILE
from bridgepack.errors import ArtifactError

_LOCK = "lock"


def staging_folder(output: Path) -> Path:
    """Return the working folder of an output: `runs/a` -> `runs/.a.building`."""
    return output.with_name(f".{output.name}.building")


@contextmanager
def staging(output: Path) -> Iterator[Path]:
    """Give an empty working folder that no other build of the same output uses; it is removed at the end.

    Raises:
        ArtifactError: when another build is using it, or it cannot be written.
    """
    folder = staging_folder(output)
    try:
        descriptor = _locked(folder)
    except OSError as error:
        raise ArtifactError(
            f"output is {str(output)!r}; {str(folder)!r} cannot be written: {error.strerror}. Choose another --output."
        ) from None
    try:
        _clear(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def refuse_foreign_folder(output: Path) -> None:
    """Make sure that putting an artifact at `output` destroys nothing else.

    Raises:
        ArtifactError: when it is a file, or a folder with something in it that is no artifact.
    """
    if output.exists() and not output.is_dir():
        raise ArtifactError(f"output is {str(output)!r}, which is a file. Choose a folder.")
    if output.is_dir() and any(output.iterdir()) and not (output / MANIFEST_FILE).exists():
        raise ArtifactError(
            f"output is {str(output)!r}, a folder that holds something else than an artifact. Choose a new folder, "
            "or empty this one."
        )


def move_into_place(finished: Path, output: Path) -> None:
    """Put a finished artifact where it belongs; one that is there goes only once the new one is complete."""
    old = output.with_name(f".{output.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if output.exists():
        output.rename(old)
    finished.rename(output)
    sync_folder(output.parent)
    shutil.rmtree(old, ignore_errors=True)


def _locked(folder: Path) -> int:
    """Return a descriptor that holds the folder's lock until it is closed or the process ends."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise ArtifactError(
                f"another build is writing to {str(folder)!r}. Wait until it is done, or choose another --output."
            ) from None
        if _is_same_file(descriptor, folder / _LOCK):
            return descriptor
        os.close(descriptor)


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _clear(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != _LOCK:
            entry.unlink()
