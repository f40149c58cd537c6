"""Rows of a user's own data on which an engine is compared with `tokenizers` before a build starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from bridgepack.data.reading.inputs import InputFile
from bridgepack.data.reading.ranges import iter_ranges
from bridgepack.data.reading.rows import RowRead, read_range
from bridgepack.errors import DataError

#: Files that rows are taken from, and most rows of each.
_NUM_FILES, _NUM_ROWS = 8, 500


def sampled_rows(files: Sequence[InputFile], max_row_bytes: int) -> Iterator[RowRead]:
    """Yield rows from the beginning of some of the files, in turn; a file that cannot be read gives none.

    Args:
        files: all inputs.
        max_row_bytes: largest row; larger ones are not read.
    """
    chosen = sorted({len(files) * number // _NUM_FILES for number in range(_NUM_FILES)}) if files else []
    rows = [_first_rows(files[index], index, max_row_bytes) for index in chosen]
    while rows:
        for of_file in list(rows):
            row = next(of_file, None)
            if row is None:
                rows.remove(of_file)
            else:
                yield row


def _first_rows(file: InputFile, index: int, max_row_bytes: int) -> Iterator[RowRead]:
    try:
        for part in islice(iter_ranges(file, index, sha256="", max_row_bytes=max_row_bytes), 1):
            if not part.is_oversized:
                yield from islice(read_range(file, part), _NUM_ROWS)
    except DataError:  # the build itself says so, where its turn comes
        return
