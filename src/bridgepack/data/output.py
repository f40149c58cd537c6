"""A build's working folder beside its output: locked, kept where a build was ended, and moved into place as a whole."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bridgepack.data.artifact.bridge_metadata import BRIDGE_METADATA_FILE
from bridgepack.data.artifact.contents import PLAN_FOLDER, REPORT_FILE
from bridgepack.data.artifact.manifest import MANIFEST_FILE, is_manifest, read_manifest
from bridgepack.data.files import TEMPORARY_SUFFIX, nearest_folder, refuse_name, sync_folder, write_text
from bridgepack.errors import ArtifactError, ArtifactInUseError, BridgepackError, StoreError
from bridgepack.records import SPLITS, Manifest

#: Parts of a working folder: the artifact, what says which of its shards are finished, and what is made anew each time.
ARTIFACT, RECEIPTS, WORK = "artifact", "receipts", "work"
_LOCK, _IDENTITY = "lock", "identity"
ARTIFACT_ENTRIES = frozenset({MANIFEST_FILE, BRIDGE_METADATA_FILE, PLAN_FOLDER, REPORT_FILE, *SPLITS})


def staging_folder(output: Path) -> Path:
    """Return the working folder of an output: `runs/a` -> `/.../runs/.a.building`; links are followed."""
    return _beside(output, "building")


@contextmanager
def staging(output: Path, identity: str | None = None) -> Iterator[Path]:
    """Give the working folder of an output, which no other build of it uses meanwhile.

    What a build of the same identity had finished there is still there; with None nothing is. The folder goes at the
    end, unless the block was left by an error and something is worth keeping.

    Raises:
        ArtifactError: when another build is using it, it cannot be written, or an artifact at the output has other
            things in it, which would be lost.
    """
    folder, old = staging_folder(output), _beside(output, "old")
    if not output.resolve().exists() and is_manifest(old / MANIFEST_FILE):
        old.rename(output.resolve())  # a build had moved it away when it was ended, before the new one was in place
    entries = {entry.name for entry in output.iterdir()} if output.is_dir() else set()
    foreign = sorted(entries - ARTIFACT_ENTRIES)
    if foreign:
        raise ArtifactError(
            f"output is {str(output)!r}, an artifact with other things in it, which would be lost: "
            f"{', '.join(foreign[:5])}. Move them away, or choose a new folder."
        )
    try:
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
        is_in_place = not (folder / ARTIFACT).exists()  # then only an empty working folder is left
        is_kept = not is_in_place and any((folder / RECEIPTS).glob("*/*"))
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
        ArtifactError: when its name is not UTF-8 or begins with ~, or it is a file, the current folder, or a folder
            with something in it that is no artifact.
    """
    refuse_name(output, ArtifactError, "output is")
    if output.parts[:1] == ("~",):
        raise ArtifactError(f"output is {str(output)!r}, where only a shell reads ~. Write the home folder out.")
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


def existing_manifest(output: Path) -> Manifest | None:
    """Return the manifest at the output; one that cannot be read counts as none and is replaced."""
    try:
        return read_manifest(output)
    except ArtifactError:
        return None


def refuse_unwritable(output: Path, store: Path) -> None:
    """Make sure that files can be made where an artifact and a store will be; nothing is left there.

    Raises:
        ArtifactError, StoreError: when not.
    """
    refuse_name(output, ArtifactError, "output is")
    refuse_name(store, StoreError, "the token store is")
    _try(output.absolute().parent, ArtifactError, f"output is {str(output)!r}", "--output")
    _try(store.absolute(), StoreError, f"the token store is {str(store)!r}", "--store")


def _try(folder: Path, kind: type[BridgepackError], what: str, option: str) -> None:
    place = nearest_folder(folder)
    try:
        with tempfile.TemporaryFile(dir=place) as stream:
            stream.write(b"x")
    except OSError as cause:
        reason = f"{str(place)!r} cannot be written: {cause.strerror or cause}"
        raise kind(f"{what}; {reason}. Choose another {option}.") from None


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


def _locked(folder: Path) -> int:
    """Return a descriptor that holds the folder's lock until it is closed or the process ends."""
    if folder.is_symlink():
        raise ArtifactError(
            f"{str(folder)!r}, the working folder, is a link, and what it leads to would be emptied. Remove it."
        )
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            if folder.is_file():
                raise
            continue  # another build has just ended and takes the folder away, here and below
        with suppress(FileNotFoundError):
            descriptor = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o644)
            if _holds(descriptor, folder):
                return descriptor


def _holds(descriptor: int, folder: Path) -> bool:
    """Lock the descriptor and say whether it is the folder's lock still; where it is not, it is closed."""
    is_held = False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_held = os.path.samestat(os.fstat(descriptor), (folder / _LOCK).stat())
    except BlockingIOError:
        raise ArtifactInUseError(
            f"another build is writing to {str(folder)!r}. Wait until it is done, or choose another --output."
        ) from None
    finally:
        if not is_held:
            os.close(descriptor)
    return is_held


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
