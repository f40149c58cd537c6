"""A build's working folder beside its output: locked, kept where a build was ended, and moved into place as a whole."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bridgepack.data.artifact.artifact import PLAN_FOLDER
from bridgepack.data.artifact.bridge_metadata import BRIDGE_METADATA_FILE
from bridgepack.data.artifact.manifest import MANIFEST_FILE, is_manifest
from bridgepack.data.files import TEMPORARY_SUFFIX, sync_folder, write_text
from bridgepack.errors import ArtifactError, ArtifactInUseError
from bridgepack.records import SPLITS

#: Parts of a working folder: the artifact, what says which of its shards are finished, and what is made anew each time.
ARTIFACT, RECEIPTS, WORK = "artifact", "receipts", "work"
_LOCK, _IDENTITY = "lock", "identity"
_REPORT_FILE = "report.html"
ARTIFACT_ENTRIES = frozenset({MANIFEST_FILE, BRIDGE_METADATA_FILE, PLAN_FOLDER, _REPORT_FILE, *SPLITS})


def staging_folder(output: Path) -> Path:
    """Return the working folder of an output: `runs/a` -> `/.../runs/.a.building`; links are followed."""
    return _beside(output, "building")


@contextmanager
def staging(output: Path, identity: str | None = None) -> Iterator[Path]:
    """Give the working folder of an output, which no other build of it uses meanwhile.

    What a build of the same identity had finished there is still there. The folder goes at the end, unless the block
    was left by an error and something is worth keeping.

    Args:
        output: where the artifact goes.
        identity: of the build: what is kept is of use to the same build only; None where nothing is.

    Raises:
        ArtifactError: when another build is using it, it cannot be written, or an artifact at the output has other
            things in it, which would be lost.
    """
    _restore_moved(output)
    _refuse_foreign_entries(output)
    folder = staging_folder(output)
    try:
        _refuse_link(folder)
        descriptor = _locked(folder)
    except OSError as error:
        raise ArtifactError(
            f"output is {str(output)!r}; {str(folder)!r} cannot be written: {error.strerror}. Choose another --output."
        ) from None
    is_kept = False
    try:
        _prepare(folder, identity)
        yield folder
    except BaseException:
        is_kept = any((folder / RECEIPTS).glob("*/*"))
        raise
    finally:
        if is_kept:
            shutil.rmtree(folder / WORK, ignore_errors=True)
        else:
            _remove(folder)
        os.close(descriptor)


def refuse_foreign_folder(output: Path) -> None:
    """Make sure that there is an artifact at `output`, or nothing.

    Raises:
        ArtifactError: when it is a file, the current folder, or a folder with something in it that is no artifact.
    """
    if output.exists() and not output.is_dir():
        raise ArtifactError(f"output is {str(output)!r}, which is a file. Choose a folder.")
    if Path.cwd().is_relative_to(output.resolve()):
        raise ArtifactError(
            f"output is {str(output)!r}, the current folder or one around it, which a build would replace. Choose a "
            "folder inside it."
        )
    if output.is_dir() and any(output.iterdir()) and not is_manifest(output / MANIFEST_FILE):
        raise ArtifactError(
            f"output is {str(output)!r}, a folder that holds something else than an artifact. Choose a new folder, "
            "or empty this one."
        )


def move_into_place(finished: Path, output: Path) -> None:
    """Put a finished artifact where it belongs; one that is there goes only once the new one is complete."""
    place, old = output.resolve(), _beside(output, "old")
    if place.exists():
        shutil.rmtree(old, ignore_errors=True)
        place.rename(old)
    finished.rename(place)
    sync_folder(place.parent)
    sync_folder(finished.parent)
    shutil.rmtree(old, ignore_errors=True)


def _restore_moved(output: Path) -> None:
    """Put the artifact back that a build had moved away when it was ended, before the new one was in its place."""
    place, old = output.resolve(), _beside(output, "old")
    if not place.exists() and is_manifest(old / MANIFEST_FILE):
        old.rename(place)


def _prepare(folder: Path, identity: str | None) -> None:
    """Let the folder hold what a build of this identity has finished, and nothing else."""
    identity_file = folder / _IDENTITY
    if identity is None or not identity_file.is_file() or identity_file.read_text(encoding="utf-8") != identity:
        _clear(folder)
        if identity is not None:
            write_text(identity_file, identity)
    for leftover in folder.rglob(f".*{TEMPORARY_SUFFIX}"):
        leftover.unlink()
    shutil.rmtree(folder / WORK, ignore_errors=True)


def remove_leftovers(output: Path) -> None:
    """Remove what a build left that was ended after its artifact was in place."""
    folder, old = staging_folder(output), _beside(output, "old")
    if not (folder.exists() or old.exists()):
        return
    try:
        descriptor = _locked(folder)
    except (OSError, ArtifactError):  # another build is at work, or nothing may be removed here: both are no error
        return
    shutil.rmtree(old, ignore_errors=True)
    _remove(folder)
    os.close(descriptor)


def _beside(output: Path, purpose: str) -> Path:
    place = output.resolve()
    return place.with_name(f".{place.name}.{purpose}")


def _refuse_foreign_entries(output: Path) -> None:
    entries = {entry.name for entry in output.iterdir()} if output.is_dir() else set()
    foreign = sorted(entries - ARTIFACT_ENTRIES)
    if foreign:
        raise ArtifactError(
            f"output is {str(output)!r}, an artifact with other things in it, which would be lost: "
            f"{', '.join(foreign[:5])}. Move them away, or choose a new folder."
        )


def _locked(folder: Path) -> int:
    """Return a descriptor that holds the folder's lock until it is closed or the process ends."""
    while True:
        descriptor = _lock_file(folder)
        if descriptor is None:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise ArtifactInUseError(
                f"another build is writing to {str(folder)!r}. Wait until it is done, or choose another --output."
            ) from None
        if _is_same_file(descriptor, folder / _LOCK):
            return descriptor
        os.close(descriptor)


def _lock_file(folder: Path) -> int | None:
    """Return a descriptor of the folder's lock; None when another build has just ended and is taking it away."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        if folder.is_file() or folder.is_symlink():
            raise
        return None
    try:
        return os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o644)
    except FileNotFoundError:
        return None


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _refuse_link(folder: Path) -> None:
    if folder.is_symlink():
        raise ArtifactError(
            f"{str(folder)!r}, the working folder, is a link, and what it leads to would be emptied. Remove it."
        )


def _remove(folder: Path) -> None:
    """Remove a folder whose lock is held, as far as it can be; the lock goes last, for whoever waits starts then."""
    with suppress(OSError):
        _clear(folder)
        (folder / _LOCK).unlink()
        folder.rmdir()


def _clear(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != _LOCK:
            entry.unlink()
