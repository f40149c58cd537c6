"""Files that are whole or not there: written to a temporary name, synced, renamed, and the folder synced."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bridgepack.errors import BridgepackError

#: Ends the name of a file that is not whole yet; one that is left behind belongs to a process that was killed.
TEMPORARY_SUFFIX = ".tmp"
#: Seconds in which the hub has to answer.
_HUB_TIMEOUT_S = 5.0


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


def refuse_name(path: Path, kind: type[BridgepackError], what: str) -> None:
    """Raise an error of `kind` where the name of a file or folder is not UTF-8, which pyarrow opens none of."""
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        raise kind(f"{what} {str(path)!r}, whose name is not UTF-8. Give it another name.") from None


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


@contextmanager
def hub_or_cache(name: str) -> Iterator[None]:
    """Let Hugging Face's libraries look into their cache alone where the hub does not answer: they try for a minute.

    The hub is asked once, and only for what is no folder here.

    Raises:
        OSError: what is in the block raised OSError or ValueError without the hub; it says how to work offline.
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
    except Exception:  # the library has changed its HTTP client, and with it its errors
        is_silent = True
    constants.HF_HUB_OFFLINE = was_offline or is_silent
    try:
        yield
    except Exception as error:
        if constants.HF_HUB_OFFLINE:
            why = "HF_HUB_OFFLINE is set" if was_offline else f"{constants.ENDPOINT} does not answer"
            raise OSError(
                f"{why}, and the cache {constants.HF_HUB_CACHE} does not have it whole; to work "
                f"offline, fetch {name} elsewhere with `hf download` and copy it here"
            ) from error
        raise
    finally:
        constants.HF_HUB_OFFLINE = was_offline
