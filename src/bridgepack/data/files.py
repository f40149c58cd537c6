"""Atomic file writes: write to a temporary name, sync, rename, sync the folder."""

import errno
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bridgepack.errors import BridgepackError

#: Suffix of a file that is still being written; a leftover belongs to a process that was killed.
TEMPORARY_SUFFIX = ".tmp"
#: Seconds to wait for the hub's answer.
_HUB_TIMEOUT_S = 5.0


@contextmanager
def replaced_when_whole(path: Path, *, is_shared: bool = False, is_lasting: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` when the block ends without an error.

    `is_shared`: other processes may write the same file; each gets its own temporary path. `is_lasting`: the file
    outlasts a failure of the machine right after that, for which its bytes are flushed to disk.
    """
    mark = f".{os.getpid()}-{secrets.token_hex(4)}" if is_shared else ""
    temporary = path.with_name(f".{path.name}{mark}{TEMPORARY_SUFFIX}")
    try:
        yield temporary
        if is_lasting:
            with temporary.open("rb") as stream:
                os.fsync(stream.fileno())
        temporary.replace(path)
        if is_lasting:
            sync_folder(path.parent)
    except OSError as error:
        error.filename = error.filename or str(path)  # errors of an open file carry no name
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str, *, is_shared: bool = False) -> None:
    """Write a UTF-8 file atomically."""
    with replaced_when_whole(path, is_shared=is_shared) as temporary:
        temporary.write_text(text, encoding="utf-8")


def refuse_name(path: Path, kind: type[BridgepackError], statement: str) -> None:
    """Raise an error of `kind` if a path is not UTF-8, because pyarrow cannot open it."""
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        raise kind(f"{statement} {str(path)!r}, whose name is not UTF-8. Rename it.") from None


def refuse_special(path: Path) -> None:
    """Refuse what is neither a regular file nor a folder, such as a pipe, because opening it may never end.

    Raises:
        OSError: it is.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def remove_entry(path: Path, *, ignores_errors: bool = False) -> None:
    """Remove what stands at a path, if anything does: a file, a pipe, a link, or a folder with all in it.

    `ignores_errors`: of a folder, what cannot be removed stays.

    Raises:
        OSError: it cannot be removed.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=ignores_errors)
    else:
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def nearest_folder(place: Path) -> Path:
    """Return a path, or its nearest parent that exists."""
    return next(path for path in (place, *place.parents) if path.exists())


def make_folders(folder: Path) -> None:
    """Make a folder and its parents, and flush their entries to disk."""
    if not folder.is_dir():
        make_folders(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


@contextmanager
def hub_or_cache(name: str) -> Iterator[None]:
    """Limit Hugging Face's libraries to their cache if the hub does not answer; otherwise they retry for a minute.

    Asks the hub once, and only if `name` is not a local folder.

    Raises:
        OSError: the block raised OSError or ValueError without the hub; the message says how to work offline.
    """
    if Path(name).exists():
        yield
        return
    from huggingface_hub import constants, get_session

    was_offline = constants.HF_HUB_OFFLINE
    try:
        if not was_offline:
            get_session().head(constants.ENDPOINT, timeout=_HUB_TIMEOUT_S)
        is_silent = False
    except Exception:  # the library's HTTP client, and so its errors, differ between versions
        is_silent = True
    constants.HF_HUB_OFFLINE = was_offline or is_silent
    try:
        yield
    except Exception as error:
        if constants.HF_HUB_OFFLINE:
            why = "HF_HUB_OFFLINE is set" if was_offline else f"{constants.ENDPOINT} does not answer"
            raise OSError(
                f"{why}, and the cache {constants.HF_HUB_CACHE} does not have all its files; to work "
                f"offline, run `hf download {name}` on a machine with access and copy it here"
            ) from error
        raise
    finally:
        constants.HF_HUB_OFFLINE = was_offline


def has_in_cache(name: str, files: Iterable[str], revision: str | None = None) -> bool:
    """Return whether the cache of Hugging Face's libraries has any of the files of a repository; asks no hub."""
    return folder_in_cache(name, files, revision) is not None


def folder_in_cache(name: str, files: Iterable[str], revision: str | None = None) -> Path | None:
    """Return the folder with a repository's files in the cache, if it has any of these; asks no hub."""
    from huggingface_hub import constants, try_to_load_from_cache

    with suppress(ValueError):  # not a name that a repository can have
        for file in files:
            path = try_to_load_from_cache(name, file, cache_dir=constants.HF_HUB_CACHE, revision=revision)
            if isinstance(path, str):
                return Path(path).parent
    return None


@contextmanager
def only_cache() -> Iterator[None]:
    """Limit Hugging Face's libraries to their cache."""
    from huggingface_hub import constants

    was_offline, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = was_offline
