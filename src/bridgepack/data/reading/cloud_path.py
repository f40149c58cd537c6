"""A folder in an object store as a path: listed once, its files read by byte ranges."""

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
    """The objects below a URL."""

    sizes: Mapping[str, int]  #: URL -> bytes
    folders: frozenset[str]  #: URLs of its folders


class CloudPath(PosixPath):
    """A read-only path whose text is a URL."""

    def __init__(self, *parts: Any, listing: _Listing) -> None:
        super().__init__(*parts)
        self._listing = listing

    def with_segments(self, *parts: Any) -> "CloudPath":
        """Return another path below the same URL."""
        return CloudPath(*parts, listing=self._listing)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with the listing, so that other processes need not list again."""
        return _restored, (str(self), self._listing)

    def __str__(self) -> str:
        return super().__str__().replace(":/", "://", 1)

    def __fspath__(self) -> str:
        """Refuse use as a local file."""
        raise TypeError(f"{self} is not a local file")

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:  # noqa: ARG002 (an object store has no links)
        """Return size and kind.

        Raises:
            FileNotFoundError: the object does not exist.
        """
        url = str(self)
        if url in self._listing.sizes:
            return os.stat_result((stat.S_IFREG | 0o444, 0, 0, 1, 0, 0, self._listing.sizes[url], 0, 0, 0))
        if url in self._listing.folders:
            return os.stat_result((stat.S_IFDIR | 0o555, 0, 0, 1, 0, 0, 0, 0, 0, 0))
        raise FileNotFoundError(2, "there is no such object", url)

    def open(self, mode: str = "r", buffering: int = -1, encoding: str | None = None, *others: Any, **more: Any) -> Any:
        """Return a stream of its bytes or text; fetches only what is read."""
        stream = CloudFile(url=str(self), num_bytes=self.stat().st_size).open(buffering=buffering)
        return stream if "b" in mode else io.TextIOWrapper(stream, encoding or "utf-8", *others, **more)

    def resolve(self, strict: bool = False) -> "CloudPath":  # noqa: ARG002 (as of a path)
        """Return the path itself."""
        return self

    absolute = resolve

    def iterdir(self) -> Generator["CloudPath", None, None]:
        """Yield the folder's entries."""
        for url in sorted({*self._listing.sizes, *self._listing.folders}):
            if url.rpartition("/")[0] == str(self):
                yield self / url.rpartition("/")[2]

    def files_below(self) -> Iterator[str]:
        """Yield the paths of all files below it, relative to it."""
        beginning = f"{self}/"
        return (url.removeprefix(beginning) for url in self._listing.sizes if url.startswith(beginning))


def _restored(url: str, listing: _Listing) -> CloudPath:
    return CloudPath(url, listing=listing)


def artifact_place(text: str | Path) -> Path:
    """Return a local path, or for a URL a path in the object store, with the objects below it listed.

    Raises:
        ConfigError: the URL is invalid, or the package that reads it is not installed.
        ArtifactError: the store does not answer, or has no object below the URL.
    """
    if isinstance(text, Path) or scheme_of(text) is None:
        return Path(text)
    url = checked_url(text, "artifact").rstrip("/")
    try:
        sizes = {file.url: file.num_bytes for file in find_objects(url)}
    except OSError as error:
        raise ArtifactError(
            f"{url!r} cannot be read: {error.strerror}. Check the URL, credentials, endpoint and permissions."
        ) from None
    names = [PurePosixPath(name).relative_to(PurePosixPath(url)) for name in sizes if name.startswith(f"{url}/")]
    if not names:
        raise ArtifactError(f"{url!r} has no objects below it. Give the URL of an artifact's folder.")
    folders = {f"{url}/{parent}".removesuffix("/.") for name in names for parent in name.parents}
    return CloudPath(url, listing=_Listing(sizes=sizes, folders=frozenset(folders)))


def arrow_source(path: Path) -> Any:
    """Return what pyarrow can open: a local path, or a stream for a path in an object store."""
    return path.open("rb") if isinstance(path, CloudPath) else path
