"""A folder in an object store as a path: what is there is listed once, and files are read by byte ranges."""

import io
import os
import stat
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PosixPath, PurePosixPath
from typing import Any

from bridgepack.data.reading.remote import CloudFile, checked_url, find_objects, scheme_of
from bridgepack.errors import ArtifactError


@dataclass(frozen=True, kw_only=True, slots=True)
class _Listing:
    """What is below a URL."""

    sizes: Mapping[str, int]  #: URL -> bytes
    folders: frozenset[str]  #: their URLs


class CloudPath(PosixPath):
    """A path whose text is a URL; it can be looked at and read, and nothing else."""

    def __init__(self, *parts: Any, listing: _Listing) -> None:
        super().__init__(*parts)
        self._listing = listing

    def with_segments(self, *parts: Any) -> "CloudPath":
        """Return another path below the same URL."""
        return CloudPath(*parts, listing=self._listing)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with what is there, so that other processes list nothing."""
        return _restored, (str(self), self._listing)

    def __str__(self) -> str:
        return super().__str__().replace(":/", "://", 1)

    def __fspath__(self) -> str:
        """Refuse to be taken for a file of this machine."""
        raise TypeError(f"{self} is no file of this machine")

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:  # noqa: ARG002 (an object store has no links)
        """Return size and kind.

        Raises:
            FileNotFoundError: there is no such object.
        """
        url = str(self)
        if url in self._listing.sizes:
            return os.stat_result((stat.S_IFREG | 0o444, 0, 0, 1, 0, 0, self._listing.sizes[url], 0, 0, 0))
        if url in self._listing.folders:
            return os.stat_result((stat.S_IFDIR | 0o555, 0, 0, 1, 0, 0, 0, 0, 0, 0))
        raise FileNotFoundError(2, "there is no such object", url)

    def open(self, mode: str = "r", buffering: int = -1, encoding: str | None = None, *others: Any, **more: Any) -> Any:
        """Return its bytes, or its text, as a stream; only what is read is fetched."""
        stream = CloudFile(url=str(self), num_bytes=self.stat().st_size).open(buffering=buffering)
        return stream if "b" in mode else io.TextIOWrapper(stream, encoding or "utf-8", *others, **more)

    def resolve(self, strict: bool = False) -> "CloudPath":  # noqa: ARG002 (as of a path)
        """Return the path itself."""
        return self

    absolute = resolve

    def iterdir(self) -> Generator["CloudPath", None, None]:
        """Yield what lies in the folder."""
        for url in sorted({*self._listing.sizes, *self._listing.folders}):
            if url.rpartition("/")[0] == str(self):
                yield self / url.rpartition("/")[2]

    def files_below(self) -> Iterator[str]:
        """Yield the files below it, relative to it."""
        beginning = f"{self}/"
        return (url.removeprefix(beginning) for url in self._listing.sizes if url.startswith(beginning))


def _restored(url: str, listing: _Listing) -> CloudPath:
    return CloudPath(url, listing=listing)


def artifact_place(text: str | Path) -> Path:
    """Return a path: of this machine, or for a URL of an object store, where what is below it is listed.

    Raises:
        ConfigError: the URL is none, or nothing is installed that reads it.
        ArtifactError: the store does not answer, or nothing is there.
    """
    if isinstance(text, Path) or scheme_of(text) is None:
        return Path(text)
    url = checked_url(text, "artifact").rstrip("/")
    try:
        sizes = {file.url: file.num_bytes for file in find_objects(url)}
    except OSError as error:
        raise ArtifactError(
            f"{url!r} cannot be read: {error.strerror}. Check the URL, the credentials, the endpoint and the rights."
        ) from None
    names = [PurePosixPath(name).relative_to(PurePosixPath(url)) for name in sizes if name.startswith(f"{url}/")]
    if not names:
        raise ArtifactError(f"{url!r} has nothing below it. Give the URL of an artifact's folder.")
    folders = {f"{url}/{parent}".removesuffix("/.") for name in names for parent in name.parents}
    return CloudPath(url, listing=_Listing(sizes=sizes, folders=frozenset(folders)))


def arrow_source(path: Path) -> Any:
    """Return what pyarrow opens: a path, or for one in an object store a stream."""
    return path.open("rb") if isinstance(path, CloudPath) else path
