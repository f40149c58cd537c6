"""Finds the files that lie in a recipe's folders and below its prefixes, and are not read."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from bridgepack.data.reading.remote import CloudFile, Readable, checked_url, find_objects, scheme_of
from bridgepack.data.reading.saved import DICT_FILE, FILES_WITHOUT_ROWS
from bridgepack.records import SkippedFiles

_EXAMPLES = 3


def skipped_files(sources: Iterable[str], read: Sequence[Readable]) -> SkippedFiles | None:
    """Return what folders, and prefixes of object stores, hold beside the files that are read; None if nothing.

    Leaves out what `datasets.save_to_disk` writes, and the other splits of a DatasetDict.

    Raises:
        OSError: an object store does not answer.
    """
    known = {file.url if isinstance(file, CloudFile) else str(file) for file in read}
    other: dict[str, str] = {}
    hidden: dict[str, str] = {}
    for source in sources:
        for place, name in _files_below(source):
            if place not in known and PurePosixPath(name).name not in FILES_WITHOUT_ROWS:
                is_hidden = any(part.startswith(".") for part in PurePosixPath(name).parts)
                (hidden if is_hidden else other)[place] = name
    if not other and not hidden:
        return None
    names = [name.encode(errors="backslashreplace").decode() for name in sorted((other or hidden).values())]
    return SkippedFiles(num_other=len(other), num_hidden=len(hidden), examples=tuple(names[:_EXAMPLES]))


def _files_below(source: str) -> Iterator[tuple[str, str]]:
    """Yield the place of each file below a source and its name there; nothing for a file or a local pattern."""
    if scheme_of(source) is not None:
        for item in find_objects(checked_url(source, "data")):
            prefix = source.rstrip("/") + "/"
            name = item.url.removeprefix(prefix) if item.url.startswith(prefix) else item.url.rsplit("/", 1)[-1]
            yield item.url, name
        return
    folder = Path(source).expanduser()
    if folder.is_dir() and not (folder / DICT_FILE).is_file():
        for path in folder.rglob("*"):
            if path.is_symlink() or not path.is_dir():
                is_folder = path.is_dir()  # a link; the files in it are not read
                yield str(path), path.relative_to(folder).as_posix() + "/" * is_folder
