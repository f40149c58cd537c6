"""A build's working folder beside its output: locked, kept after an interrupted build, and moved into place whole."""

import fcntl
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bridgepack.data.artifact.artifact import PLAN_FOLDER, REPORT_FILE
from bridgepack.data.artifact.bridge_metadata import BRIDGE_METADATA_FILE
from bridgepack.data.artifact.manifest import MANIFEST_FILE, is_manifest, read_manifest
from bridgepack.data.files import (
    TEMPORARY_SUFFIX,
    nearest_folder,
    refuse_name,
    remove_entry,
    sync_folder,
    write_text,
)
from bridgepack.data.owners import WITHOUT_FLOCK, claim, release
from bridgepack.errors import ArtifactError, ArtifactInUseError, BridgepackError, StoreError
from bridgepack.records import SPLITS, Manifest
from bridgepack.user_files import real_path

#: Parts of a working folder: the artifact, the receipts of its finished shards, and files that every build makes again.
ARTIFACT, RECEIPTS, WORK = "artifact", "receipts", "work"
#: The locks: by flock, and where the file system has none, by a file that names its owner.
_LOCK, _OWNER, _IDENTITY = "lock", "owner.json", "identity"
ARTIFACT_ENTRIES = frozenset({MANIFEST_FILE, BRIDGE_METADATA_FILE, PLAN_FOLDER, REPORT_FILE, *SPLITS})
_WEAKER = (
    "the file system of {!r} has no flock: builds keep out of each other's way by a file beside the output, which a "
    "killed build on another machine leaves, and `store prune` removes nothing"
)
_LOG = logging.getLogger(__name__)


def staging_folder(output: Path) -> Path:
    """Return the working folder of an output, following links: `runs/a` -> `/.../runs/.a.building`."""
    return _beside(output, "building")


@contextmanager
def staging(output: Path, identity: str | None = None) -> Iterator[Path]:
    """Yield the working folder of an output, locked against other builds.

    It keeps what an interrupted build of the same identity finished; with None it is empty. It is removed at the
    end, unless the block raised and there is finished work to keep.

    Raises:
        ArtifactError: another build is using it, it cannot be written, or the artifact at the output contains other
            files, which would be lost.
    """
    folder, old = staging_folder(output), _beside(output, "old")
    if not real_path(output).exists() and is_manifest(old / MANIFEST_FILE):
        old.rename(real_path(output))  # an interrupted build had moved it away before the new one was in place
    entries = {entry.name for entry in output.iterdir()} if output.is_dir() else set()
    foreign = sorted(entries - ARTIFACT_ENTRIES)
    if foreign:
        raise ArtifactError(
            f"output is {str(output)!r}, an artifact that also contains other files, which would be lost: "
            f"{', '.join(foreign[:5])}. Move them away, or choose a new folder."
        )
    has_folder = folder.exists()
    try:
        descriptor = _lock(folder)
    except OSError as error:
        if not has_folder:
            _remove(folder)
        raise ArtifactError(
            f"output is {str(output)!r}; {str(folder)!r} cannot be written: {error.strerror}. Choose another --output."
        ) from None
    is_kept = False
    try:
        _prepare(folder, identity)
        yield folder
    except BaseException:
        is_in_place = not (folder / ARTIFACT).exists()  # the working folder is then empty
        is_kept = not is_in_place and any((folder / RECEIPTS).glob("*/*"))
        raise
    finally:
        if is_kept:
            _discard(folder / WORK)
        else:
            _remove(folder)
        _unlock(folder, descriptor)


def refuse_foreign_folder(output: Path) -> None:
    """Check that `output` is an artifact, is empty or does not exist.

    Raises:
        ArtifactError: its name is not UTF-8 or begins with ~, or it is a file, the current folder, or a folder with
            contents other than an artifact.
    """
    refuse_name(output, ArtifactError, "output is")
    if output.parts[:1] == ("~",):
        raise ArtifactError(f"output is {str(output)!r}; only a shell expands ~. Give the full path.")
    if output.exists() and not output.is_dir():
        raise ArtifactError(f"output is {str(output)!r}, which is a file. Choose a folder.")
    if Path.cwd().is_relative_to(real_path(output)):
        raise ArtifactError(
            f"output is {str(output)!r}, the current folder or a parent of it, which a build would replace. Choose a "
            "folder inside it."
        )
    if output.is_dir() and any(output.iterdir()) and not is_manifest(output / MANIFEST_FILE):
        raise ArtifactError(
            f"output is {str(output)!r}, a folder with files that are not an artifact. Choose a new folder, "
            "or empty this one."
        )


def existing_manifest(output: Path) -> Manifest | None:
    """Return the manifest at the output; None if there is none or it is unreadable, so that it gets replaced."""
    try:
        return read_manifest(output)
    except ArtifactError:
        return None


def refuse_unwritable(output: Path, store: Path) -> None:
    """Check that the folders of an artifact and a store are writable; leaves no files behind.

    Raises:
        ArtifactError, StoreError: a folder is not writable.
    """
    refuse_name(output, ArtifactError, "output is")
    refuse_name(store, StoreError, "the token store is")
    _try(output.absolute().parent, ArtifactError, f"output is {str(output)!r}", "--output")
    _try(store.absolute(), StoreError, f"the token store is {str(store)!r}", "--store")


def _try(folder: Path, kind: type[BridgepackError], problem: str, option: str) -> None:
    place = nearest_folder(folder)
    try:
        with tempfile.TemporaryFile(dir=place) as stream:
            stream.write(b"x")
    except OSError as cause:
        reason = f"{str(place)!r} cannot be written: {cause.strerror or cause}"
        raise kind(f"{problem}; {reason}. Choose another {option}.") from None


def move_into_place(finished_folder: Path, output: Path) -> None:
    """Move a finished artifact to its output; an old one is removed only after the new one is in place."""
    place, old = real_path(output), _beside(output, "old")
    if place.exists():
        _discard(old)
        place.rename(old)
    finished_folder.rename(place)
    sync_folder(place.parent)
    sync_folder(finished_folder.parent)
    _discard(old)


def _prepare(folder: Path, identity: str | None) -> None:
    """Keep in the folder only what a build of this identity has finished."""
    identity_file = folder / _IDENTITY
    if identity is None or not identity_file.is_file() or identity_file.read_text(encoding="utf-8") != identity:
        _clear(folder)
        if identity is not None:
            write_text(identity_file, identity)
    for leftover in folder.rglob(f".*{TEMPORARY_SUFFIX}"):
        leftover.unlink()
    _discard(folder / WORK)


def remove_leftovers(output: Path) -> None:
    """Remove what an interrupted build left after its artifact was in place."""
    folder, old = staging_folder(output), _beside(output, "old")
    if not (folder.exists() or old.exists()):
        return
    try:
        descriptor = _lock(folder)
    except (OSError, ArtifactError):  # another build is running, or removing is not permitted: neither is an error
        return
    _discard(old)
    _remove(folder)
    _unlock(folder, descriptor)


def _beside(output: Path, purpose: str) -> Path:
    place = real_path(output)
    return place.with_name(f".{place.name}.{purpose}")


def _lock(folder: Path) -> int:
    """Return a descriptor that holds the folder's lock until `_unlock` or the process's end."""
    if folder.is_symlink():
        raise ArtifactError(
            f"{str(folder)!r}, the working folder, is a link; the build would empty its target. Remove the link."
        )
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            if folder.is_file():
                raise
            continue  # another build has just ended and removes the folder, here and below
        with suppress(FileNotFoundError):
            descriptor = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o644)
            if _holds(descriptor, folder):
                return descriptor


def _holds(descriptor: int, folder: Path) -> bool:
    """Lock the descriptor and return whether it is still the folder's lock; close it if it is not."""
    is_held = False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_held = os.path.samestat(os.fstat(descriptor), (folder / _LOCK).stat())
    except BlockingIOError:
        raise ArtifactInUseError(
            f"another build is writing to {str(folder)!r}. Wait until it finishes, or choose another --output."
        ) from None
    except OSError as error:
        if error.errno not in WITHOUT_FLOCK:
            raise
        _claim(folder)
        is_held = True
    finally:
        if not is_held:
            os.close(descriptor)
    return is_held


def _claim(folder: Path) -> None:
    """Hold a folder by a file that names this process, where the file system has no flock."""
    owner = claim(folder / _OWNER)
    if owner is not None:
        raise ArtifactInUseError(
            f"{owner.text} is building in {str(folder)!r}. Wait until it finishes, or choose another --output. This "
            f"file system has no flock: if that build was killed, remove {str(folder / _OWNER)!r} and build again."
        )
    _LOG.warning("%s", _WEAKER.format(str(folder.parent)))


def _unlock(folder: Path, descriptor: int) -> None:
    release(folder / _OWNER)
    os.close(descriptor)


def _remove(folder: Path) -> None:
    """Remove a locked folder as far as possible; its lock last, because a waiting build then starts."""
    with suppress(OSError):
        _clear(folder)
        (folder / _LOCK).unlink()
        release(folder / _OWNER)
        folder.rmdir()


def _clear(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.name not in (_LOCK, _OWNER):
            remove_entry(entry)


def _discard(path: Path) -> None:
    """Remove what stands at a path as far as possible."""
    with suppress(OSError):
        remove_entry(path, ignores_errors=True)
