"""Objects of an object store, read by byte ranges: s3://, gs://, az:// and others through fsspec.

msc:// also goes through fsspec, to NVIDIA's multi-storage-client, which Megatron uses. A folder of an artifact is a
path that is listed once.
"""

import errno
import hashlib
import io
import os
import re
import stat
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PosixPath, PurePosixPath
from typing import IO, Any

from bridgepack.config.errors import quote
from bridgepack.errors import ArtifactError, ConfigError, UnreachableError

_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
#: Scheme -> package that reads it.
PACKAGES = {
    "s3": "s3fs",
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("az", "abfs", "abfss"), "adlfs"),
    "msc": "multi-storage-client",
}
_BUFFER_BYTES = 1 << 22


@dataclass(frozen=True, kw_only=True, slots=True)
class CloudFile:
    """One object: its URL and its size when it was found; has the path methods that reading needs."""

    url: str
    num_bytes: int

    def __str__(self) -> str:
        return self.url

    def open(self, mode: str = "rb", buffering: int = _BUFFER_BYTES) -> IO[bytes]:
        """Return a stream of its bytes; fetches only what is read and up to `buffering` bytes more."""
        assert mode == "rb"
        return io.BufferedReader(_Ranges(self), max(buffering, _BUFFER_BYTES))

    def stamp(self) -> tuple[int, int]:
        """Return (size, a number that changes when the object is rewritten).

        Raises:
            OSError: it does not exist, or the store does not answer.
        """
        with as_os_errors(self.url):
            filesystem, path = filesystem_of(self.url)
            facts = filesystem.info(path)
        marks = [str(facts.get(key)) for key in ("ETag", "etag", "md5Hash", "generation", "LastModified", "mtime")]
        return int(facts["size"]), int.from_bytes(hashlib.sha256("\n".join(marks).encode()).digest()[:7])

    def is_file(self) -> bool:
        """Return whether the object exists."""
        try:
            self.stamp()
        except FileNotFoundError:
            return False
        return True


#: A source of rows.
Readable = Path | CloudFile


class _Ranges(io.RawIOBase):
    def __init__(self, file: CloudFile) -> None:
        self._file = file
        self._position = 0
        with as_os_errors(file.url):
            self._filesystem, self._path = filesystem_of(file.url)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.num_bytes}[whence]
        self._position = begin + offset
        return self._position

    def readinto(self, target: Any) -> int:
        size = min(len(target), self._file.num_bytes - self._position)
        if size <= 0:
            return 0
        with as_os_errors(self._file.url):
            content = self._fetch(self._position, self._position + size)
        if len(content) != size:
            raise OSError(5, "it is shorter than when it was listed", self._file.url)
        target[:size] = content
        self._position += size
        return size

    def _fetch(self, start: int, stop: int) -> bytes:
        """Return the bytes from `start` to `stop - 1`.

        Source: multistorageclient/contrib/async_fs.py, whose `cat_file` always returns the whole object.
        """
        if not hasattr(self._filesystem, "resolve_path_and_storage_client"):
            return bytes(self._filesystem.cat_file(self._path, start=start, end=stop))
        from multistorageclient.types import Range

        client, name = self._filesystem.resolve_path_and_storage_client(self._path)
        return bytes(client.read(name, byte_range=Range(offset=start, size=stop - start)))


class _RangesOfArtifact(_Ranges):
    """What the store does not give says nothing of the artifact; an object that is gone or shorter does."""

    def _fetch(self, start: int, stop: int) -> bytes:
        try:
            return super()._fetch(start, stop)
        except FileNotFoundError:
            raise
        except Exception as error:  # each store's library raises its own errors
            raise _unreachable(self._file.url, _reason(error)) from None


def _unreachable(url: str, reason: str) -> UnreachableError:
    cure = "Run the command again; if the store answers others, check credentials, endpoint and permissions"
    return UnreachableError(f"{url!r} cannot be read: {reason}. Nothing is known of the artifact. {cure}.")


def scheme_of(text: str) -> str | None:
    """Return the scheme of a URL in lower case; None for a path."""
    match = _URL.fullmatch(text)
    return match["scheme"].lower() if match else None


def checked_url(text: str, field: str) -> str:
    """Return a URL that can name an object.

    Raises:
        ConfigError: it cannot, or the package that reads it is not installed.
    """
    match = _URL.fullmatch(text)
    assert match is not None
    scheme, bucket = match["scheme"].lower(), match["rest"].partition("/")[0]
    if scheme not in PACKAGES:
        raise ConfigError(
            f"{field} is {quote(text)}; allowed: a path, or a URL with {', '.join(PACKAGES)}. Use one of these."
        )
    if not match["rest"].strip("/") or "?" in bucket or "@" in bucket:
        raise ConfigError(f"{field} is {quote(text)}; allowed: {scheme}://BUCKET/KEY. Give only bucket and key.")
    try:
        filesystem_of(text)
    except ImportError as error:
        package = PACKAGES[scheme]
        raise ConfigError(
            f"{field} is {quote(text)}, which needs {package}: {_first_line(error)}. Install it: pip install {package}"
        ) from None
    except Exception as error:  # each store's library raises its own errors for missing settings and credentials
        raise ConfigError(f"{field} is {quote(text)}; {_reason(error)}.") from None
    return f"{scheme}://{match['rest']}"


def find_objects(url: str) -> list[CloudFile]:
    """Return the objects of a URL, sorted: one object, all below a prefix, or those that match a pattern.

    Raises:
        OSError: the bucket does not exist, or the store does not answer.
    """
    with as_os_errors(url):
        filesystem, path = filesystem_of(url)
        if any(character in path for character in "*?["):
            entries = filesystem.glob(path, detail=True)
        elif filesystem.isfile(path):
            entries = {path: filesystem.info(path)}
        else:
            entries = filesystem.find(path, detail=True)
    files = [(name, entry) for name, entry in sorted(entries.items()) if entry["type"] == "file" and name[-1:] != "/"]
    keys = [(match["rest"] if (match := _URL.fullmatch(name)) else name.lstrip("/"), entry) for name, entry in files]
    return [CloudFile(url=f"{scheme_of(url)}://{key}", num_bytes=int(entry["size"])) for key, entry in keys]


def filesystem_of(url: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URL, and the URL's path in it."""
    import fsspec

    # No cached listings: an object that is written meanwhile must be seen. fsspec keeps one file system per process.
    filesystem = fsspec.filesystem(scheme_of(url) or "", use_listings_cache=False)
    return filesystem, str(filesystem._strip_protocol(url))


@contextmanager
def as_os_errors(url: str) -> Iterator[None]:
    """Turn every error of a store's library into an OSError, as for files."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(2, "the object does not exist", url) from None
    except UnreachableError:
        raise
    except Exception as error:  # each store's library raises its own errors
        raise OSError(5, _reason(error), url) from None


def _reason(error: BaseException) -> str:
    return f"{_first_line(error).rstrip('.')} ({type(error).__name__})"


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]


class CloudPath(PosixPath):
    """A read-only path whose text is a URL; `listing` is URL -> bytes of everything below, None for folders."""

    def __init__(self, *parts: Any, listing: Mapping[str, int | None]) -> None:
        super().__init__(*parts)
        self._listing = listing

    def with_segments(self, *parts: Any) -> "CloudPath":
        """Return another path below the same URL."""
        return CloudPath(*parts, listing=self._listing)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with the listing, so that other processes need not list again."""
        return partial(CloudPath, listing=self._listing), (str(self),)

    def __str__(self) -> str:
        return super().__str__().replace(":/", "://", 1)

    def __fspath__(self) -> str:
        raise OSError(errno.ENOTSUP, "it is in an object store, where this cannot be read; copy it here", str(self))

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:  # noqa: ARG002 (an object store has no links)
        """Return size and kind; raises FileNotFoundError if the object does not exist."""
        if (url := str(self)) not in self._listing:
            raise FileNotFoundError(2, "there is no such object", url)
        size = self._listing[url]
        mode = stat.S_IFDIR | 0o555 if size is None else stat.S_IFREG | 0o444
        return os.stat_result((mode, 0, 0, 1, 0, 0, size or 0, 0, 0, 0))

    def open(
        self, mode: str = "r", buffering: int = -1, encoding: str | None = None, *arguments: Any, **more: Any
    ) -> Any:
        """Return a stream of its bytes or text, which fetches only what is read.

        Raises:
            UnreachableError: the store does not answer; here or by the stream.
        """
        file = CloudFile(url=str(self), num_bytes=self.stat().st_size)
        stream = io.BufferedReader(_RangesOfArtifact(file), max(buffering, _BUFFER_BYTES))
        return stream if "b" in mode else io.TextIOWrapper(stream, encoding or "utf-8", *arguments, **more)

    def resolve(self, strict: bool = False) -> "CloudPath":  # noqa: ARG002 (as of a path)
        """Return the path itself."""
        return self

    absolute = resolve

    def iterdir(self) -> Generator["CloudPath", None, None]:
        """Yield the folder's entries."""
        for url in sorted(self._listing):
            if url.rpartition("/")[0] == str(self):
                yield self / url.rpartition("/")[2]

    def glob(self, pattern: str, **_: Any) -> Generator["CloudPath", None, None]:
        """Yield the folder's entries whose names match a pattern without folders."""
        assert "/" not in pattern
        return (entry for entry in self.iterdir() if fnmatchcase(entry.name, pattern))

    def files_below(self) -> Iterator[str]:
        """Yield the paths of all files below it, relative to it."""
        beginning, files = f"{self}/", (url for url, size in self._listing.items() if size is not None)
        return (url.removeprefix(beginning) for url in files if url.startswith(beginning))


def artifact_place(text: str | Path) -> Path:
    """Return a local path, or for a URL a path in the object store, with the objects below it listed.

    Raises:
        ConfigError: the URL is invalid, or the package that reads it is not installed.
        ArtifactError: there is no such bucket, or no object below the URL.
        UnreachableError: the store does not answer.
    """
    if isinstance(text, Path) or scheme_of(text) is None:
        return Path(text)
    url = checked_url(text, "artifact").rstrip("/")
    try:
        sizes: dict[str, int | None] = {file.url: file.num_bytes for file in find_objects(url)}
    except FileNotFoundError as error:
        raise ArtifactError(f"{url!r} cannot be read: {error.strerror}. Check the URL.") from None
    except OSError as error:
        raise _unreachable(url, str(error.strerror)) from None
    names = [PurePosixPath(name).relative_to(PurePosixPath(url)) for name in sizes if name.startswith(f"{url}/")]
    if not names:
        raise ArtifactError(f"{url!r} has no objects below it. Give the URL of an artifact's folder.")
    folders = (f"{url}/{parent}".removesuffix("/.") for name in names for parent in name.parents)
    return CloudPath(url, listing={**dict.fromkeys(folders), **sizes})


def arrow_source(path: Path) -> Any:
    """Return what pyarrow can open: a local path, or a stream for a path in an object store."""
    return path.open("rb") if isinstance(path, CloudPath) else path
