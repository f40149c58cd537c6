"""Detects the layout of data that is here, from rows of all its parts."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from bridgepack.config.errors import quoted
from bridgepack.config.layouts.detect import Detection, detect, entry_named
from bridgepack.config.layouts.sayings import NO_LAYOUT
from bridgepack.config.recipe.data import DataConfig
from bridgepack.data.reading.inputs import InputFile, find_inputs
from bridgepack.data.reading.remote import scheme_of
from bridgepack.data.reading.rows import pick_evenly, read_range
from bridgepack.data.reading.sampling import file_windows
from bridgepack.errors import ConfigError, DataError
from bridgepack.records import TRAIN

#: Rows, and files that they are taken from, at most; and rows of a window, so that they are spread over a file.
_MAX_ROWS, _MAX_FILES, _WINDOW_ROWS = 1000, 8, 100
type _PlacedRow = tuple[str, Mapping[str, Any]]


def detect_data(data: str | tuple[str, ...], layout: str | None = None) -> Detection | None:
    """Return the layout of the data at a path; None if there are no rows yet, or `layout` says `none`.

    `layout` is the name of an entry to use.

    Raises:
        ConfigError: as `detect`; or a name is given, and there are no rows to know its columns from.
    """
    if layout == NO_LAYOUT:
        return None
    if layout is not None:
        entry_named(layout)
    found = [*islice(_rows(data), _MAX_ROWS)]
    if any(value for _, row in found for value in row.values()):
        places, rows = [place for place, _ in found], [row for _, row in found]
        return detect(rows, name=layout, what=f"--data is {quoted(data)}", places=places)
    if layout is None:
        return None
    raise ConfigError(
        f"--layout is {layout}, and --data is {quoted(data)}, where no row is found to tell its columns. Put the data "
        f"there first, or use --layout {NO_LAYOUT}."
    )


def _rows(data: str | tuple[str, ...]) -> Iterator[_PlacedRow]:
    """Yield rows of a path's files in turn, with their places; none of a URL."""
    files: list[InputFile] = []
    sources = (data,) if isinstance(data, str) else data
    if not any(map(scheme_of, sources)):
        with suppress(DataError):  # `check` reports it
            files = find_inputs(sources, "data.train", TRAIN, Path())
    in_turn = zip_longest(*map(_rows_of, pick_evenly(files, _MAX_FILES)))
    yield from (row for group in in_turn for row in group if row is not None)


def _rows_of(file: InputFile) -> Iterator[_PlacedRow]:
    """Yield rows of a file: the first of each window, then the others."""
    rest: list[_PlacedRow] = []
    with suppress(DataError):
        for window in file_windows(file, max_row_bytes=DataConfig.model_fields["max_row_bytes"].default).windows:
            about = "" if window.has_row_numbers else "~"
            rows = [
                (f"{file.label} row {about}{number}", row)
                for number, row in read_range(file, window.part)
                if isinstance(row, Mapping)
            ]
            yield from rows[:_WINDOW_ROWS]
            rest += rows[_WINDOW_ROWS:]
    yield from rest
