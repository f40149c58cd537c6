"""Collects the files that lie in a recipe's folders and below its prefixes, and are not read."""

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from bridgepack.data.reading.remote import CloudFile, Readable
from bridgepack.data.reading.saved import FILES_WITHOUT_ROWS
from bridgepack.records import SkippedFiles

_EXAMPLES = 3


class FilesBelow:
    """All files of a split's folders and prefixes; leaves out what `datasets.save_to_disk` writes beside the rows."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def add_folder(self, folder: Path, entries: Iterable[Path]) -> None:
        """Add a folder's entries, at any depth; of a linked folder, whose files are not read, the link itself."""
        for path in entries:
            is_folder = path.is_dir()
            if not is_folder or path.is_symlink():
                self._add(str(path), path.relative_to(folder).as_posix() + "/" * is_folder)

    def add_objects(self, url: str, objects: Iterable[CloudFile]) -> None:
        """Add the objects below a prefix, or those that match a pattern."""
        prefix = url.rstrip("/") + "/"
        for item in objects:
            self._add(item.url, item.url.removeprefix(prefix) if item.url.startswith(prefix) else _last(item.url))

    def _add(self, place: str, name: str) -> None:
        if _last(name) not in FILES_WITHOUT_ROWS:
            self._names[place] = name

    def without(self, read: Sequence[Readable]) -> SkippedFiles | None:
        """Return what is beside the files that are read; None if nothing."""
        known = {file.url if isinstance(file, CloudFile) else str(file) for file in read}
        names = [name for place, name in self._names.items() if place not in known]
        hidden = [name for name in names if any(part.startswith(".") for part in PurePosixPath(name).parts)]
        if not names:
            return None
        other = sorted(set(names).difference(hidden))
        examples = [name.encode(errors="backslashreplace").decode() for name in other or sorted(hidden)]
        return SkippedFiles(
            num_other=len(names) - len(hidden), num_hidden=len(hidden), examples=tuple(examples[:_EXAMPLES])
        )


def _last(name: str) -> str:
    return name.rsplit("/", 1)[-1]
