"""Detects the layout of data that is here, from rows of all its parts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from bridgepack.config.errors import quote
from bridgepack.config.layouts.detect import Detection, detect, entries_named
from bridgepack.config.layouts.sayings import NO_LAYOUT
from bridgepack.config.layouts.shapes import detect_mixed
from bridgepack.config.recipe.data import DataConfig
from bridgepack.data.reading.inputs import InputFile, find_inputs
from bridgepack.data.reading.remote import scheme_of
from bridgepack.data.reading.rows import has_row, pick_evenly, read_range
from bridgepack.data.reading.sampling import file_windows
from bridgepack.data.reading.whole_objects import OneObjectError
from bridgepack.errors import ConfigError, DataError
from bridgepack.records import TRAIN, VALIDATION

#: Rows, and files that they are taken from, at most; and rows of a window, so that they are spread over a file.
_MAX_ROWS, _MAX_FILES, _WINDOW_ROWS = 1000, 8, 100
#: Files that are looked at one by one, where their layouts differ.
_MAX_EACH = 64
type _PlacedRow = tuple[str, Mapping[str, Any]]


def detect_data_or_files(
    data: str | tuple[str, ...], layout: str | None = None
) -> tuple[Detection | None, dict[str, Detection]]:
    """Return the layout of the data at a path, as `detect_data`, or path -> layout where its files have several.

    Where the rows of one file have several shapes, the layout is a list.

    Raises:
        ConfigError: as `detect_data`.
    """
    try:
        return detect_data(data, layout), {}
    except ConfigError:
        parts = detect_files(data) if layout is None else {}
        several = _detect_mixed(data) if layout is None and not parts else None
        if not parts and several is None:
            raise
        return several, parts


def _detect_mixed(data: str | tuple[str, ...]) -> Detection | None:
    """Return the layouts that together read the rows at a path, if its rows have several shapes; else None."""
    placed_rows = [*islice(_rows(_files(data)), _MAX_ROWS)]
    rows, places = [row for _, row in placed_rows], [place for place, _ in placed_rows]
    return detect_mixed(rows, data_name=f"--data is {quote(data)}", places=places)


def detect_data(data: str | tuple[str, ...], layout: str | None = None) -> Detection | None:
    """Return the layout of the data at a path; None if there are no rows yet, or `layout` says `none`.

    `layout` is the name of an entry to use.

    Raises:
        ConfigError: as `detect`; or a name is given, and there are no rows to know its columns from.
    """
    if layout == NO_LAYOUT:
        return None
    if layout is not None:
        entries_named(layout)
    placed_rows = [*islice(_rows(_files(data)), _MAX_ROWS)]
    if any(value for _, row in placed_rows for value in row.values()):
        places, rows = [place for place, _ in placed_rows], [row for _, row in placed_rows]
        return detect(rows, name=layout, data_name=f"--data is {quote(data)}", places=places)
    if layout is None:
        return None
    raise ConfigError(
        f"--layout is {layout}, and --data is {quote(data)}, where no row is found to tell its columns. Put the data "
        f"there first, or use --layout {NO_LAYOUT}."
    )


def require_data(data: str | tuple[str, ...], *, option: str = "--data", split: str = TRAIN) -> None:
    """Raise DataError for paths without data files or rows, which messages call `option`; URLs are not looked at."""
    sources = (data,) if isinstance(data, str) else data
    files = find_inputs(tuple(source for source in sources if scheme_of(source) is None), option, split, Path())
    if files and not any(map(_may_have_rows, files)):
        raise DataError(f"{option} is {quote(data)}; it has no rows. Give a file that has some.")


def _may_have_rows(file: InputFile) -> bool:
    try:
        return file.num_bytes > 0 and has_row(file, DataConfig.model_fields["max_row_bytes"].default)
    except DataError:  # what cannot be read is said where it is read
        return True


def detect_sets(
    sets: Mapping[str, str], layouts: Iterable[Detection], layout: str | None
) -> dict[str, tuple[str, Detection | None]]:
    """Return name of a validation set -> its path, and the layout of its rows where none of `layouts` is the same.

    `layout`, as for `detect_data`, is taken where several fit.

    Raises:
        ConfigError: as `detect`.
        DataError: a path has no data files.
    """
    detections: dict[str, tuple[str, Detection | None]] = {}
    training_layouts = {fitting_layout for item in layouts for fitting_layout in item.layouts}
    for name, path in sets.items():
        option = f"--validation {name}"
        require_data(path, option=option, split=VALIDATION)
        detection = None if layout == NO_LAYOUT else _detect_set(path, f"{option} is {quote(path)}", layout)
        is_alike = detection is None or training_layouts.issuperset(detection.layouts)
        detections[name] = path, None if is_alike else detection
    return detections


def _detect_set(path: str, data_name: str, layout: str | None) -> Detection | None:
    """Return the layout of a set's rows, `layout` if several fit; None without rows."""
    placed_rows = [*islice(_rows(_files(path)), _MAX_ROWS)]
    places, rows = [place for place, _ in placed_rows], [row for _, row in placed_rows]
    if not any(value for row in rows for value in row.values()):
        return None
    try:
        return detect(rows, data_name=data_name, places=places)
    except ConfigError:
        if layout is None:
            raise
        return detect(rows, name=layout, data_name=data_name, places=places)


def detect_files(data: str | tuple[str, ...]) -> dict[str, Detection]:
    """Return path -> layout of its rows, for data of which each file has one layout, but not all the same.

    Files that lie in one folder and have the same layout are one entry, under the folder, if nothing else lies there.
    Empty if a file has no layout, if all have the same, or if they are too many to look at each.
    """
    files = _files(data)
    if not 1 < len(files) <= _MAX_EACH:
        return {}
    detections: dict[str, Detection] = {}
    for file in files:
        placed_rows = [*islice(_rows([file]), _MAX_ROWS)]
        if not any(value for _, row in placed_rows for value in row.values()):
            continue
        places, rows = [place for place, _ in placed_rows], [row for _, row in placed_rows]
        try:
            detections[file.label] = detect(rows, data_name=file.label, places=places)
        except ConfigError:
            return {}
    by_place = _by_folder(detections, files)
    return by_place if len({detection.layout for detection in detections.values()}) > 1 else {}


def _by_folder(detections: Mapping[str, Detection], files: Sequence[InputFile]) -> dict[str, Detection]:
    """Return detections under the folders of their files, where all files below a folder have the same layout."""
    by_place: dict[str, Detection] = {}
    for path, detection in detections.items():
        folder = Path(path).parent
        inside = [file.label for file in files if folder in Path(file.label).parents]
        is_whole = len(inside) > 1 and all(
            name in detections and detections[name].layout == detection.layout for name in inside
        )
        by_place.setdefault(str(folder) if is_whole else path, detection)
    return by_place


def _files(data: str | tuple[str, ...]) -> list[InputFile]:
    """Return the files of a path; none of a URL, and none where they cannot be found."""
    sources = (data,) if isinstance(data, str) else data
    if not any(map(scheme_of, sources)):
        with suppress(DataError):  # `check` reports it
            return find_inputs(sources, "data.train", TRAIN, Path())
    return []


def _rows(files: Sequence[InputFile]) -> Iterator[_PlacedRow]:
    """Yield rows of files in turn, with their places."""
    in_turn = zip_longest(*map(_rows_of, pick_evenly(files, _MAX_FILES)))
    yield from (row for group in in_turn for row in group if row is not None)


@contextmanager
def _unless_one_object() -> Iterator[None]:
    """Leave errors of files to `check`, but that of a file that is one object, of which nothing can be detected."""
    try:
        yield
    except OneObjectError:
        raise
    except DataError:
        return


def _rows_of(file: InputFile) -> Iterator[_PlacedRow]:
    """Yield rows of a file: the first of each window, then the others."""
    later_rows: list[_PlacedRow] = []
    with _unless_one_object():
        for window in file_windows(file, max_row_bytes=DataConfig.model_fields["max_row_bytes"].default).windows:
            about = "" if window.has_row_numbers else "~"
            rows = [
                (f"{file.label} row {about}{number}", row)
                for number, row in read_range(file, window.part)
                if isinstance(row, Mapping)
            ]
            yield from rows[:_WINDOW_ROWS]
            later_rows += rows[_WINDOW_ROWS:]
    yield from later_rows
