"""Collects the files that lie in a recipe's folders and below its prefixes, and are not read."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from bridgepack.data.reading.remote import CloudFile, Readable
from bridgepack.data.reading.saved import FILES_WITHOUT_ROWS
from bridgepack.records import SkippedFiles

_EXAMPLES = 3


class FilesBelow:
    """All files of a split's folders and prefixes; leaves out what `datasets.save_to_disk` writes beside the rows.

    What is added is looked at only by `without`, so that it costs nothing where nobody asks.
    """

    def __init__(self) -> None:
        self._folders: list[tuple[Path, Iterable[Path]]] = []
        self._prefixes: list[tuple[str, Sequence[CloudFile]]] = []

    def add_folder(self, folder: Path, entries: Iterable[Path]) -> None:
        """Add a folder's entries, at any depth; of a linked folder, whose files are not read, the link itself."""
        self._folders.append((folder, entries))

    def add_objects(self, url: str, objects: Sequence[CloudFile]) -> None:
        """Add the objects below a prefix, or those that match a pattern."""
        self._prefixes.append((url, objects))

    def without(self, read: Sequence[Readable]) -> SkippedFiles | None:
        """Return what is beside the files that are read; None if nothing."""
        read_places = {file.url if isinstance(file, CloudFile) else str(file) for file in read}
        other_names: list[str] = []
        hidden_names: list[str] = []
        for place, name in dict(self._places_and_names()).items():
            if place not in read_places and _last(name) not in FILES_WITHOUT_ROWS:
                is_hidden = any(part.startswith(".") for part in PurePosixPath(name).parts)
                (hidden_names if is_hidden else other_names).append(name)
        if not other_names and not hidden_names:
            return None
        names = [name.encode(errors="backslashreplace").decode() for name in sorted(other_names or hidden_names)]
        return SkippedFiles(num_other=len(other_names), num_hidden=len(hidden_names), examples=tuple(names[:_EXAMPLES]))

    def _places_and_names(self) -> Iterator[tuple[str, str]]:
        for folder, entries in self._folders:
            for path in entries:
                is_folder = path.is_dir()
                if not is_folder or path.is_symlink():
                    yield str(path), path.relative_to(folder).as_posix() + "/" * is_folder
        for url, objects in self._prefixes:
            prefix = url.rstrip("/") + "/"
            for item in objects:
                yield item.url, item.url.removeprefix(prefix) if item.url.startswith(prefix) else _last(item.url)


def _last(name: str) -> str:
    return name.rsplit("/", 1)[-1]
