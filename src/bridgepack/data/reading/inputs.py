"""Finds and hashes a recipe's input files: files, folders, globs, saved data sets and Hugging Face ids."""

import glob
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from bridgepack.config.errors import nearest_name, quote
from bridgepack.config.recipe.data import DEFAULT_SPLIT, DataSource, Source, path_of
from bridgepack.config.recipe.readings import Reading
from bridgepack.data.files import hub_or_cache
from bridgepack.data.reading.lines import open_stream
from bridgepack.data.reading.remote import CloudFile, Readable, checked_url, find_objects, scheme_of
from bridgepack.data.reading.saved import DICT_FILE, FILES_WITHOUT_ROWS, STATE_FILE, saved_files, split_folder
from bridgepack.data.reading.skipped import FilesBelow
from bridgepack.data.reading.split_names import HELD_OUT_NAMES, refuse_several_splits
from bridgepack.errors import DataError, about
from bridgepack.records.rows import ReadRow

JSON_LINES, JSON_ARRAY, PARQUET, ARROW, CSV, TSV = "jsonl", "json", "parquet", "arrow", "csv", "tsv"
GZIP, ZSTANDARD = "gz", "zst"
_KINDS = {
    **dict.fromkeys((".jsonl", ".ndjson"), JSON_LINES),
    ".json": JSON_ARRAY,
    **dict.fromkeys((".parquet", ".pq"), PARQUET),
    ".arrow": ARROW,
    ".csv": CSV,
    ".tsv": TSV,
}
_COMPRESSIONS = {".gz": GZIP, ".zst": ZSTANDARD}
_FORMS = ".jsonl, .json, .csv, .tsv (each also .gz or .zst), .parquet, .arrow"
#: Split -> names to look for in a saved DatasetDict.
_SPLIT_NAMES = {"training": ("train",), "validation": HELD_OUT_NAMES}
_BLOCK_BYTES = 1 << 22


def names_of(columns: Mapping[str, Any]) -> str:
    """Return the names of a row's columns, for messages."""
    return ", ".join(sorted(map(str, columns)))[:200] or "no fields"


class RowView(Protocol):
    """How the rows of a source are read."""

    @property
    def key(self) -> Sequence[Any]:
        """What the result depends on, beside the row."""
        ...

    @property
    def kind(self) -> str:
        """Kind of the rows, which chooses their settings."""
        ...

    @property
    def reading(self) -> Reading:
        """The layouts of the rows."""
        ...

    def read(self, row: Mapping[str, Any]) -> ReadRow:
        """Return a row with the columns that encoders read; raises RowError if it cannot be read."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class InputFile:
    """One file with rows."""

    path: Readable
    label: str  #: its name in the manifest and the ledger
    kind: str  #: `jsonl`, `json` (an array of objects), `csv`, `tsv`, `parquet` or `arrow`
    compression: str | None = None  #: `gz`, `zst` or None; not for the last two kinds
    source: int = 0  #: position among the split's sources that have rows
    view: RowView | None = None  #: how its rows are read; None leaves them as they are

    @property
    def num_bytes(self) -> int:
        """Size in bytes as stored."""
        return self.path.num_bytes if isinstance(self.path, CloudFile) else self.path.stat().st_size

    @property
    def kind_of_rows(self) -> str:
        """Kind of its rows, which chooses their settings; empty if they are left as they are."""
        return "" if self.view is None else self.view.kind


def find_inputs(
    sources: tuple[Source, ...],
    field: str,
    split: str,
    scratch: Path,
    view_of: Callable[[Source, Sequence[InputFile], str], RowView] | None = None,
    below: FilesBelow | None = None,
) -> list[InputFile]:
    """Return the files of a split in the recipe's order; the files of each folder and glob are sorted.

    Messages name the recipe's `field`. The split chooses among those of a saved DatasetDict. Hugging Face data sets are
    first written to `scratch`, as Parquet. `view_of` returns how the rows of a source are read, by its files and
    the recipe's field; without it they stay as they are. `below` gets all files of folders and prefixes, those that are
    not read, too.

    Raises:
        DataError: a source is missing, empty or of an unknown kind.
    """
    files: list[InputFile] = []
    for index, source in enumerate(sources):
        path = path_of(source)
        source_split = source.split if isinstance(source, DataSource) else None
        with about(field):
            if path is not None:
                source_files = _files_of(
                    path, field, source_split or split, below or FilesBelow(), is_named=source_split is not None
                )
            else:
                assert isinstance(source, DataSource)
                source_files = [_materialise(source, field, scratch / f"{split}-{index}.parquet")]
        view = None if view_of is None else view_of(source, source_files, field)
        files += [replace(file, source=index, view=view) for file in source_files]
    return files


def file_stamp(path: Readable) -> tuple[int, int]:
    """Return (size, modification time in ns); an equal stamp later means that the file was not written."""
    if isinstance(path, CloudFile):
        return path.stamp()
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def hash_file(path: Readable, is_given_up: threading.Event | None = None) -> str:
    """Return the sha256 of a file's bytes, hexadecimal; of only a part once `is_given_up` is set.

    Raises:
        DataError: the file cannot be read.
    """
    digest = hashlib.sha256()
    for block in iter_blocks(path):
        if is_given_up is not None and is_given_up.is_set():
            break
        digest.update(block)
    return digest.hexdigest()


def iter_blocks(path: Readable) -> Iterator[bytes]:
    """Yield a file's bytes in blocks of 4 MiB; raises DataError if the file cannot be read."""
    with open_stream(path, None) as stream:
        while block := stream.read(_BLOCK_BYTES):
            yield block


def _files_of(source: str, field: str, split: str, below: FilesBelow, *, is_named: bool) -> list[InputFile]:
    is_url = scheme_of(source) is not None
    try:
        if is_url:
            files = _files_in_cloud(source, field, below)
        else:
            folder = Path(source).expanduser()
            if is_named and (folder / DICT_FILE).is_file():
                return _files_in_folder(split_folder(folder, field, (split,)), field, split, FilesBelow())
            files = _files_at(folder, source, field, split, below)
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        advice = "the bucket, key, credentials, endpoint and permissions" if is_url else "the path"
        raise DataError(f"{field} is {quote(source)}; it cannot be accessed: {reason}. Check {advice}.") from None
    if is_named:
        raise DataError(
            f"{field} is {quote(source)} with split {split!r}; only a saved DatasetDict has splits. Remove split."
        )
    return files


def _files_in_cloud(source: str, field: str, below: FilesBelow) -> list[InputFile]:
    """Return the data files of a URL; below a prefix, skips other files, as in a folder."""
    url = checked_url(source, field)
    objects = find_objects(url)
    if not objects:
        problem = "the pattern matches no object" if "*" in url else "there is no such object or prefix"
        raise DataError(f"{field} is {source!r}; {problem}. Check the URL.")
    if len(objects) == 1 and objects[0].url == url.rstrip("/"):
        return [_input_file(objects[0], field)]
    below.add_objects(url, objects)
    num_above = url.count("/")
    data_objects = [item for item in objects if _is_data_file(item.url.split("/")[num_above:])]
    files = [_input_file(item, field) for item in data_objects]
    if not any(character in url for character in "*?["):
        num_above = url.rstrip("/").count("/") + 1
        refuse_several_splits(url, {item.url: item.url.split("/")[num_above:] for item in data_objects}, field)
    if not files:
        raise DataError(f"{field} is {source!r}; no object there is a data file. Allowed: {_FORMS}. Name another.")
    return files


def _files_at(path: Path, source: str, field: str, split: str, below: FilesBelow) -> list[InputFile]:
    if path.is_file():
        return [_input_file(path, field)]
    if path.is_dir():
        return _files_in_folder(path, field, split, below)
    if any(character in source for character in "*?["):
        names = glob.glob(str(path), recursive=True)  # noqa: PTH207 (a pattern may be absolute)
        paths = sorted(Path(name) for name in names if _is_file(Path(name), field))
        if not paths:
            raise DataError(f"{field} is {source!r}; the pattern matches no file. Check the path and the pattern.")
        return [_input_file(file, field) for file in paths]
    if not _is_file(path, field) and path.exists():
        raise DataError(
            f"{field} is {source!r}, which is neither a file nor a folder. Write its rows to a file and name that."
        )
    raise DataError(f"{field} is {source!r}; there is no such file or folder.{_hint(path, source)}")


def _is_file(path: Path, field: str) -> bool:
    if path.is_symlink() and not path.exists():
        raise DataError(
            f"{field}: {str(path)!r} is a broken link: its target does not exist. Fetch the target or remove the link."
        )
    return path.is_file()


def _is_folder(path: Path, field: str) -> bool:
    if not _is_file(path, field) and not path.is_dir():
        raise DataError(
            f"{field}: {str(path)!r} is neither a file nor a folder. Write its rows to a file in its place."
        )
    return path.is_dir()


def _hint(path: Path, source: str) -> str:
    entries = path.parent.iterdir() if path.parent.is_dir() else ()
    siblings = [entry.name for entry in entries if entry != path and (entry.is_file() or entry.is_dir())]
    nearest = nearest_name(path.name, siblings)
    if nearest:
        return f" Did you mean {str(path.parent / nearest)!r}?"
    if source.count("/") <= 1 and not path.suffix:
        return f" For a data set on the Hugging Face hub write {{dataset: {source}}}."
    return " Check the path." if path.is_absolute() else " Check the path; it is relative to the current folder."


def _files_in_folder(folder: Path, field: str, split: str, below: FilesBelow) -> list[InputFile]:
    if (folder / DICT_FILE).is_file():  # other files there are those of its other splits
        return _files_in_folder(split_folder(folder, field, _SPLIT_NAMES[split]), field, split, FilesBelow())
    if (folder / STATE_FILE).is_file():
        below.add_folder(folder, folder.rglob("*"))
        return [InputFile(path=file, label=_label(file), kind=ARROW) for file in saved_files(folder, field)]
    paths = data_files_in(folder, field, below)
    refuse_several_splits(str(folder), {str(path): path.relative_to(folder).parts for path in paths}, field)
    return [_input_file(path, field) for path in paths]


def data_files_in(folder: Path, field: str, below: FilesBelow | None = None) -> list[Path]:
    """Return the data files in a folder and its subfolders, sorted; adds all files to `below`.

    Raises:
        DataError: there is none, or one is a broken link, a pipe or a device.
    """
    entries = sorted(folder.rglob("*"))
    if below is not None:
        below.add_folder(folder, entries)
    files = [path for path in entries if _is_data_file(path.relative_to(folder).parts) and not _is_folder(path, field)]
    if not files:
        raise DataError(f"{field} is {str(folder)!r}; the folder has no data file. Allowed: {_FORMS}. Name another.")
    return files


def _is_data_file(parts: list[str] | tuple[str, ...]) -> bool:
    """Return whether a file holds rows, by its path below a folder; False for hidden files."""
    is_hidden = any(part.startswith(".") for part in parts)
    return not is_hidden and parts[-1] not in FILES_WITHOUT_ROWS and _kind_of(parts[-1]) is not None


def _kind_of(name: str) -> tuple[str, str | None] | None:
    """Return (kind, compression) by a name's suffixes; None if they are unknown."""
    *_, before, last = "", "", *PurePosixPath(name.lower()).suffixes
    compression = _COMPRESSIONS.get(last)
    kind = _KINDS.get(before if compression else last)
    can_be_read = kind is not None and (compression is None or kind not in {PARQUET, ARROW})
    return (kind, compression) if can_be_read and kind is not None else None


def _input_file(path: Readable, field: str) -> InputFile:
    kind_and_compression = _kind_of(str(path))
    if kind_and_compression is None:
        is_text = str(path).lower().endswith((".txt", ".md"))
        remedy = 'Write each text as a line {"text": ...} of a .jsonl file.' if is_text else "Rename or convert it."
        raise DataError(f"{field}: {str(path)!r} is of an unknown kind. Allowed: {_FORMS}. {remedy}")
    kind, compression = kind_and_compression
    if kind == ARROW and isinstance(path, CloudFile):
        raise DataError(f"{field}: {str(path)!r} is an Arrow file, which must be on a local disk. Write it as Parquet.")
    if kind == JSON_ARRAY and not _begins_with_bracket(path, compression):
        kind = JSON_LINES
    return InputFile(path=path, label=_label(path), kind=kind, compression=compression)


def _label(path: Readable) -> str:
    """Return a path as valid Unicode text, even if its name is not UTF-8."""
    return os.fsencode(str(path)).decode(errors="backslashreplace")


def _begins_with_bracket(path: Readable, compression: str | None) -> bool:
    with open_stream(path, compression) as stream:
        while block := stream.read(4096):
            text = block.lstrip(b"\xef\xbb\xbf \t\r\n")
            if text:
                return text[:1] == b"["
    return False


def _materialise(source: DataSource, field: str, target: Path) -> InputFile:
    """Return a Hugging Face data set as one Parquet file, written so that it can be hashed and read in ranges."""
    from datasets import disable_progress_bars, load_dataset
    from datasets.exceptions import DatasetsError

    assert source.dataset is not None
    split = source.split or DEFAULT_SPLIT
    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        with hub_or_cache(source.dataset):
            dataset: Any = load_dataset(source.dataset, source.name, split=split, revision=source.revision)
    except (DatasetsError, OSError, ValueError, ImportError, RuntimeError, KeyError, TypeError) as error:
        cause = error.__cause__ if isinstance(error, DatasetsError) else None
        reason = " ".join(str(cause or error).split())[:300]
        raise DataError(
            f"{field} is {{dataset: {source.dataset}, split: {split}}}; datasets.load_dataset cannot load it: "
            f"{reason}. Check dataset, name, split and revision, and that this machine can reach the hub or has it in "
            "its cache."
        ) from None
    target.parent.mkdir(parents=True, exist_ok=True)
    dataset.to_parquet(str(target))
    parts = [source.dataset, source.name, split, source.revision]
    label = "hf:" + "/".join(part for part in parts if part)
    return InputFile(path=target, label=label, kind=PARQUET)
