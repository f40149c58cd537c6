"""The token store: a folder of token files, shared by recipes, topologies and concurrent builds.

bridgepack-store.json                 marks the folder as a store, with its version
lock                                  shared by builds, exclusive for removing files
tokenizations/KEY/identity.json       what the tokens depend on
tokenizations/KEY/ab/RANGE.tokens     one file per input range, named by its content
builds/FINGERPRINT-OUTPUT.json        which token files an artifact was made from
rows/SHA256.parquet                   rows given in memory, which artifacts name as their source
"""

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridgepack.data.files import TEMPORARY_SUFFIX, make_folders, write_text
from bridgepack.data.identity import store_key
from bridgepack.data.owners import WITHOUT_FLOCK
from bridgepack.data.reading.inputs import RowView
from bridgepack.data.reading.ranges import InputRange
from bridgepack.data.reading.remote import scheme_of
from bridgepack.data.store.token_file import TokenOrigin, check_token_file, unusable_file
from bridgepack.errors import StoreError
from bridgepack.user_files import real_path

STORE_VARIABLE = "BRIDGEPACK_STORE"
TOKEN_SUFFIX = ".tokens"
TOKENIZATIONS, BUILDS, IDENTITY_FILE = "tokenizations", "builds", "identity.json"
ROWS = "rows"
_STORE_FILE, _LOCK = "bridgepack-store.json", "lock"
_STORE_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenStore:
    """A store's folder and the paths in it; all its files are written atomically."""

    folder: Path  #: absolute
    #: tokenisations that were used since the store was opened
    begun: set[str] = field(default_factory=set, compare=False)

    def token_file(self, tokenization: str, part: InputRange, view: RowView | None) -> Path:
        """Return the path of a range's token file, which may not exist yet; `view` says how rows are read."""
        return self.folder / TOKENIZATIONS / _name_of(token_origin(tokenization, part, view))

    def path_of(self, name: str) -> Path:
        """Return the path of a token file's name in a record.

        Raises:
            StoreError: the path would lie outside the store.
        """
        path = self.folder / name
        if ".." in path.parts or path.suffix != TOKEN_SUFFIX or not path.is_relative_to(self.folder / TOKENIZATIONS):
            raise StoreError(f"a record of the store {str(self.folder)!r} names {name!r}, which is not a token file.")
        return path

    def unfinished_files(self, tokenizations: Iterable[str] | None = None) -> list[Path]:
        """Return the unfinished files, of all or of some tokenisations; a store may hold very many.

        If no build is running, interrupted processes left them.
        """
        folders = [self.folder]
        if tokenizations is not None:
            folders = [self.folder / TOKENIZATIONS / name for name in tokenizations]
        return [path for folder in folders for path in folder.rglob(f".*{TEMPORARY_SUFFIX}")]

    def write_identity(self, tokenization: str, identity: Mapping[str, Any]) -> None:
        """Write what a tokenisation depends on, for users and for `store list`."""
        self.begun.add(tokenization)
        path = self.folder / TOKENIZATIONS / tokenization / IDENTITY_FILE
        if not path.exists():
            make_folders(path.parent)
            write_text(path, json.dumps(identity, indent=1, default=str) + "\n", is_shared=True)


def token_origin(tokenization: str, part: InputRange, view: RowView | None) -> TokenOrigin:
    """Return what the token file of a range says of itself."""
    key = None if view is None else json.dumps(view.key, sort_keys=True, default=str)
    return TokenOrigin(tokenization=tokenization, sha256=part.sha256, num_rows=part.num_rows, view=key)


def _name_of(origin: TokenOrigin) -> str:
    views = [] if origin.view is None else [json.loads(origin.view)]
    key = store_key([origin.tokenization, origin.sha256, *views])
    return f"{origin.tokenization}/{key[:2]}/{key}{TOKEN_SUFFIX}"


def check_stored_tokens(path: Path) -> TokenOrigin:
    """Return the origin of a token file of a store, after checking all its bytes, and that its name is its own.

    Raises:
        StoreError: the file was changed, is incomplete or is another range's.
    """
    origin = check_token_file(path)
    if origin is None or _name_of(origin) != "/".join(path.parts[-3:]):
        raise unusable_file(path, "its tokens are of other rows, or made with other settings, than its name says")
    return origin


def default_store(output: Path) -> Path:
    """Return the store folder of an artifact: BRIDGEPACK_STORE, or `.bridgepack/tokens` beside the artifact."""
    setting = os.environ.get(STORE_VARIABLE)
    return store_folder(setting).expanduser() if setting else real_path(output).parent / ".bridgepack" / "tokens"


def store_folder(text: str | Path) -> Path:
    """Return the store folder that a user names.

    Raises:
        StoreError: it is a URL; tokens are memory-mapped, which only files can be.
    """
    if scheme_of(str(text)) is not None:
        raise StoreError(
            f"the token store is {str(text)!r}, a URL; tokens are memory-mapped, which needs a file system. Choose a "
            "local or shared folder."
        )
    return Path(text)


@contextmanager
def opened_store(folder: Path) -> Iterator[TokenStore]:
    """Yield a store for reading and adding, created if missing; removing files from it is locked out.

    Raises:
        StoreError: the folder holds other files, cannot be written, or files are being removed from it.
    """
    store = TokenStore(folder=folder.absolute())
    try:
        _make(store.folder)
        descriptor = os.open(store.folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o666)
    except OSError as error:
        raise StoreError(
            f"the token store {str(folder)!r} cannot be written: {error.strerror}. Choose another --store."
        ) from None
    with _flock(descriptor, fcntl.LOCK_SH, f"files are being removed from the token store {str(folder)!r}"):
        try:
            yield store
        finally:
            with suppress(OSError):  # else another build uses the store
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for path in store.unfinished_files(store.begun):  # of interrupted workers and nodes
                    path.unlink(missing_ok=True)


@contextmanager
def store_at(folder: Path, *, is_emptied: bool) -> Iterator[TokenStore]:
    """Yield the store in a folder; with `is_emptied`, builds are locked out, so that files may be removed.

    Raises:
        StoreError: the folder is not a store, or a build is using it.
    """
    store = existing_store(folder)
    if not is_emptied:
        yield store
        return
    descriptor = os.open(store.folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o666)
    with _flock(descriptor, fcntl.LOCK_EX, f"a build is using the token store {str(folder)!r}", is_needed=True):
        yield store


def existing_store(folder: Path) -> TokenStore:
    """Return the store in a folder; raises StoreError if the folder is not a store, or has another version."""
    if not (folder / _STORE_FILE).is_file():
        problem = "is not a token store" if folder.exists() else "does not exist"
        raise StoreError(f"{str(folder)!r} {problem}. Name the folder with --store or in {STORE_VARIABLE}.")
    _check_version(folder)
    return TokenStore(folder=folder.absolute())


def _make(folder: Path) -> None:
    if (folder / _STORE_FILE).is_file():
        _check_version(folder)
        return
    if folder.is_dir() and any(not entry.name.startswith(".") and entry.name != _LOCK for entry in folder.iterdir()):
        raise StoreError(
            f"the token store would be {str(folder)!r}, a folder with other files. Choose another --store."
        )
    make_folders(folder)
    write_text(folder / _STORE_FILE, json.dumps({"version": _STORE_VERSION}) + "\n", is_shared=True)


def _check_version(folder: Path) -> None:
    try:
        version = json.loads((folder / _STORE_FILE).read_text(encoding="utf-8"))["version"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        version = None
    if version != _STORE_VERSION:
        raise StoreError(
            f"the token store {str(folder)!r} has version {version}; this bridgepack reads {_STORE_VERSION}. Choose "
            "another --store, or remove this folder."
        )


@contextmanager
def _flock(descriptor: int, kind: int, why_not: str, *, is_needed: bool = False) -> Iterator[None]:
    """Hold a lock while the block runs, then close the descriptor; none without flock, unless `is_needed`."""
    try:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(f"{why_not}. Wait until that finishes.") from None
        except OSError as error:
            if error.errno not in WITHOUT_FLOCK:
                raise
            if is_needed:
                raise StoreError(
                    "the token store is on a file system without flock, so nobody can tell whether a build uses it; "
                    "nothing is removed. While no build runs, remove the store's folder."
                ) from None
        yield
    finally:
        os.close(descriptor)
