"""Objects of an object store, read by byte ranges: s3://, gs://, az:// and others through fsspec.

msc:// goes through fsspec, too, to NVIDIA's multi-storage-client, which Megatron reads with.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from bridgepack.config.errors import shown
from bridgepack.errors import ConfigError, DataError

_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
#: Scheme -> package that reads it.
PACKAGES = {
    "s3": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "msc": "multi-storage-client",
}
_BUFFER_BYTES = 1 << 22


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectStatus:
    """What `Path.stat` tells of a file, of an object.

    Attributes:
        st_size: bytes.
        st_mtime_ns: a number that is another one when the object was written again; no time.
    """

    st_size: int
    st_mtime_ns: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CloudFile:
    """One object; it has the methods of a path that reading needs.

    Attributes:
        url: where it is.
        num_bytes: its size when it was found.
    """

    url: str
    num_bytes: int

    def __str__(self) -> str:
        """Return its URL."""
        return self.url

    @property
    def name(self) -> str:
        """Its last part."""
        return PurePosixPath(self.url).name

    @property
    def suffixes(self) -> list[str]:
        """Its name's suffixes: `a.jsonl.gz` -> `.jsonl`, `.gz`."""
        return PurePosixPath(self.url).suffixes

    def open(self, mode: str = "rb", buffering: int = _BUFFER_BYTES) -> IO[bytes]:
        """Return its bytes as a stream; only what is read is fetched, and up to `buffering` bytes more."""
        assert mode == "rb"
        return io.BufferedReader(_Ranges(self), max(buffering, _BUFFER_BYTES))

    def stat(self) -> ObjectStatus:
        """Return its size and what changes when it is written again.

        Raises:
            OSError: when it is not there, or the store does not answer.
        """
        with as_os_errors(self.url):
            filesystem, path = filesystem_of(self.url)
            found = filesystem.info(path)
        marks = [str(found.get(key)) for key in ("ETag", "etag", "md5Hash", "generation", "LastModified", "mtime")]
        number = int.from_bytes(hashlib.sha256("\n".join(marks).encode()).digest()[:7])
        return ObjectStatus(st_size=int(found["size"]), st_mtime_ns=number)

    def is_file(self) -> bool:
        """Say whether it is there."""
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True


#: What rows are read from.
Readable = Path | CloudFile


class _Ranges(io.RawIOBase):
    """The bytes of an object, fetched range by range."""

    def __init__(self, file: CloudFile) -> None:
        self._url = file.url
        self._size = file.num_bytes
        self._position = 0
        with as_os_errors(file.url):
            self._filesystem, self._path = filesystem_of(file.url)

    def readable(self) -> bool:
        """Say that it can be read from."""
        return True

    def seekable(self) -> bool:
        """Say that it can be entered anywhere."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a position."""
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def readinto(self, target: Any) -> int:
        """Fill the target as far as the object goes; 0 at the end.

        Raises:
            OSError: when the store does not answer.
        """
        stop = min(self._position + len(target), self._size)
        if stop <= self._position:
            return 0
        with as_os_errors(self._url):
            content = read_part(self._filesystem, self._path, self._position, stop)
        if len(content) != stop - self._position:
            raise OSError(5, "it is shorter than it was", self._url)
        target[: len(content)] = content
        self._position = stop
        return len(content)


def scheme_of(text: str) -> str | None:
    """Return the scheme of a URL in lower case; None for a path."""
    found = _URL.fullmatch(text)
    return found["scheme"].lower() if found else None


def checked_url(text: str, field: str) -> str:
    """Return a URL that can be one of an object.

    Raises:
        ConfigError: when it cannot, or nothing is installed that reads it.
    """
    found = _URL.fullmatch(text)
    assert found is not None
    scheme = found["scheme"].lower()
    if scheme not in PACKAGES:
        raise ConfigError(
            f"{field} is {shown(text)}; allowed: a path, or a URL with {', '.join(PACKAGES)}. Use one of these."
        )
    if not found["rest"].strip("/") or "?" in found["rest"].partition("/")[0] or "@" in found["rest"].partition("/")[0]:
        raise ConfigError(f"{field} is {shown(text)}; allowed: {scheme}://BUCKET/KEY. Name the bucket, and no more.")
    try:
        filesystem_of(text)
    except ImportError as error:
        package = PACKAGES[scheme]
        raise ConfigError(
            f"{field} is {shown(text)}, which needs {package}: {_first_line(error)}. Install it: pip install {package}"
        ) from None
    except Exception as error:  # each store's library raises its own for missing settings and credentials
        raise ConfigError(f"{field} is {shown(text)}; {_reason(error)}.") from None
    return f"{scheme}://{found['rest']}"


def find_objects(url: str, field: str) -> list[CloudFile]:
    """Return the objects that a URL means, sorted: one object, all below a prefix, or those that a pattern matches.

    Raises:
        DataError: when there is none, or the store does not answer.
    """
    with _as_data_errors(url, field):
        filesystem, path = filesystem_of(url)
        if any(character in path for character in "*?["):
            found = filesystem.glob(path, detail=True)
        elif filesystem.isfile(path):
            found = {path: filesystem.info(path)}
        else:
            found = filesystem.find(path, detail=True)
    scheme = scheme_of(url)
    files = [
        CloudFile(url=f"{scheme}://{_without_scheme(name)}", num_bytes=int(entry["size"]))
        for name, entry in sorted(found.items())
        if entry["type"] == "file" and not name.endswith("/")
    ]
    if not files:
        what = "the pattern matches no object" if "*" in path else "there is no such object or prefix"
        raise DataError(f"{field} is {url!r}; {what}. Check the URL.")
    return files


def read_part(filesystem: Any, path: str, start: int, stop: int) -> bytes:
    """Return the bytes of an object from `start` up to `stop`.

    Source: multistorageclient/contrib/async_fs.py, whose `cat_file` returns the whole object whatever is asked for.
    """
    content: bytes
    if hasattr(filesystem, "resolve_path_and_storage_client"):
        from multistorageclient.types import Range

        client, name = filesystem.resolve_path_and_storage_client(path)
        content = client.read(name, byte_range=Range(offset=start, size=stop - start))
    else:
        content = filesystem.cat_file(path, start=start, end=stop)
    return content


def filesystem_of(url: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URL, and what the URL is called there."""
    import fsspec

    # Listings are not kept: an object that is written meanwhile must be seen. fsspec keeps one object per process.
    filesystem = fsspec.filesystem(scheme_of(url) or "", use_listings_cache=False)
    return filesystem, str(filesystem._strip_protocol(url))


def _without_scheme(name: str) -> str:
    found = _URL.fullmatch(name)
    return found["rest"] if found else name.lstrip("/")


@contextmanager
def as_os_errors(url: str) -> Iterator[None]:
    """Let every error of a store's library be an OSError, as those of files are."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(2, "there is no such object", url) from None
    except Exception as error:  # each store's library raises its own
        raise OSError(5, _reason(error), url) from None


@contextmanager
def _as_data_errors(url: str, field: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise DataError(f"{field} is {url!r}; {_reason(error)}. Check the bucket and the key.") from None
    except Exception as error:  # each store's library raises its own
        raise DataError(
            f"{field} is {url!r}; the object store refuses: {_reason(error)}. Check the credentials, the endpoint "
            "and the rights."
        ) from None


def _reason(error: BaseException) -> str:
    return f"{_first_line(error).rstrip('.')} ({type(error).__name__})"


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
