"""Cuts input files into ranges that are tokenised apart, each named by its content.

Where the lines of a file are cut depends only on what lies before, so a file that was appended to keeps its ranges but
the last, and a file has the same ranges whether it is compressed or not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from bridgepack.data.reading.columns import arrow_table, parquet_file
from bridgepack.data.reading.decompression import open_stream
from bridgepack.data.reading.inputs import ARROW, JSON_ARRAY, JSON_LINES, PARQUET, InputFile
from bridgepack.data.reading.json_arrays import OversizedElement, iter_element_texts
from bridgepack.data.reading.lines import LineBlock, iter_line_blocks
from bridgepack.errors import DataError

#: Forms of content: the same bytes give the same rows in the same form.
LINES, ELEMENTS, COLUMNS, OVERSIZED = "lines", "elements", "columns", "oversized"
#: Uncompressed bytes of a range of rows of a columnar file.
_MIN_COLUMNS_BYTES, _MAX_COLUMNS_BYTES = 1 << 21, 1 << 25
_RANGES_PER_FILE = 256
_ELEMENTS_BYTES = 1 << 22
_MAX_ELEMENTS = 1 << 14


@dataclass(frozen=True, kw_only=True, slots=True)
class InputRange:
    """Consecutive rows of one file; every row of a file lies in exactly one range.

    Attributes:
        file_index: position of the file in the split's list of inputs.
        first_row: 1-based number of its first row (line, row or array element).
        form: how its content is read.
        sha256: of its content; equal forms and hashes mean equal rows.
        start: first byte (JSON Lines) or 0-based row of the file (Parquet and Arrow).
        stop: one past the last of them.
        payload: the bytes themselves where a file of lines cannot be entered in the middle (it is compressed).
        elements: texts of the elements of a JSON array.
        max_row_bytes: largest row of a columnar file; 0 where that was looked at already.
        num_oversized_bytes: above 0: the range is one row that is larger than the recipe allows, by this many bytes.
        num_bytes: its share of the file's size, for showing progress; 0 where that is not known.
    """

    file_index: int
    first_row: int
    form: str
    sha256: str
    start: int = 0
    stop: int = 0
    payload: bytes | None = None
    elements: tuple[bytes, ...] | None = None
    max_row_bytes: int = 0
    num_oversized_bytes: int = 0
    num_bytes: int = 0


def iter_ranges(file: InputFile, file_index: int, *, sha256: str, max_row_bytes: int) -> Iterator[InputRange]:
    """Yield a file's ranges in order; where they are cut has no influence on the rows.

    Args:
        file: the file.
        file_index: its position in the split's list of inputs.
        sha256: of the file's bytes.
        max_row_bytes: largest row; a larger one is a range of its own, and is not read.

    Raises:
        DataError: when the file cannot be read.
    """
    if file.kind in {PARQUET, ARROW}:
        sizes = _parquet_sizes(file) if file.kind == PARQUET else _arrow_sizes(file)
        for part in _column_ranges(file, file_index, sha256, sizes):
            yield replace(part, max_row_bytes=max_row_bytes)
    elif file.kind == JSON_ARRAY:
        yield from _element_ranges(file, file_index, max_row_bytes)
    else:
        yield from _line_ranges(file, file_index, max_row_bytes)


def has_known_size(file: InputFile) -> bool:
    """Say whether the ranges of a file tell their share of its size."""
    return file.compression is None and file.kind != JSON_ARRAY


def is_streamed(file: InputFile) -> bool:
    """Say whether a file can only be read from its beginning, so that its ranges carry their rows."""
    return file.kind == JSON_ARRAY or (file.kind == JSON_LINES and file.compression is not None)


def _line_ranges(file: InputFile, file_index: int, max_row_bytes: int) -> Iterator[InputRange]:
    row = 1
    with open_stream(file.path, file.compression) as stream:
        for block in iter_line_blocks(stream, max_row_bytes):
            yield _line_range(file, file_index, row, block)
            row += block.num_lines


def _line_range(file: InputFile, file_index: int, row: int, block: LineBlock) -> InputRange:
    is_plain = file.compression is None
    num_bytes = block.stop - block.start if is_plain else 0
    if block.content is None:
        return _oversized(file_index, row, block.stop - block.start, num_bytes)
    return InputRange(
        file_index=file_index,
        first_row=row,
        form=LINES,
        sha256=hashlib.sha256(block.content).hexdigest(),
        start=block.start if is_plain else 0,
        stop=block.stop if is_plain else 0,
        payload=None if is_plain else bytes(block.content),
        num_bytes=num_bytes,
    )


def _oversized(file_index: int, row: int, num_oversized_bytes: int, num_bytes: int = 0) -> InputRange:
    return InputRange(
        file_index=file_index,
        first_row=row,
        form=OVERSIZED,
        sha256=hashlib.sha256(str(num_oversized_bytes).encode()).hexdigest(),
        num_oversized_bytes=num_oversized_bytes,
        num_bytes=num_bytes,
    )


def _element_ranges(file: InputFile, file_index: int, max_row_bytes: int) -> Iterator[InputRange]:
    pending: list[bytes] = []
    num_bytes, first = 0, 1
    for element in _elements(file, max_row_bytes):
        if isinstance(element, OversizedElement):
            if pending:
                yield _element_range(file_index, first, pending)
            yield _oversized(file_index, first + len(pending), element.num_bytes)
            first, num_bytes, pending = first + len(pending) + 1, 0, []
            continue
        pending.append(element)
        num_bytes += len(element)
        if num_bytes >= _ELEMENTS_BYTES or len(pending) >= _MAX_ELEMENTS:
            yield _element_range(file_index, first, pending)
            first, num_bytes, pending = first + len(pending), 0, []
    if pending:
        yield _element_range(file_index, first, pending)


def _element_range(file_index: int, first: int, elements: list[bytes]) -> InputRange:
    digest = hashlib.sha256()
    for element in elements:
        digest.update(b"%d:" % len(element))
        digest.update(element)
    return InputRange(
        file_index=file_index, first_row=first, form=ELEMENTS, sha256=digest.hexdigest(), elements=tuple(elements)
    )


def _elements(file: InputFile, max_row_bytes: int) -> Iterator[bytes | OversizedElement]:
    with open_stream(file.path, file.compression) as stream:
        try:
            yield from iter_element_texts(stream, max_row_bytes)
        except ValueError as error:
            raise DataError(
                f"{file.label} is not a JSON array of objects: {error}. Correct it, or write one object a line "
                "(.jsonl), where a broken line costs only that row."
            ) from None


def _column_ranges(file: InputFile, file_index: int, sha256: str, sizes: list[tuple[int, int]]) -> Iterator[InputRange]:
    """Yield ranges over groups of (rows, uncompressed bytes): small groups together, large ones in parts."""
    num_rows, total = sum(rows for rows, _ in sizes), sum(size for _, size in sizes)
    target = min(max(total // _RANGES_PER_FILE, _MIN_COLUMNS_BYTES), _MAX_COLUMNS_BYTES)
    start = row = pending = 0
    for rows, size in sizes:
        if pending and pending + size > target:
            yield _column_range(file, file_index, sha256, start, row, num_rows)
            start, pending = row, 0
        num_parts = min(-(-size // target), rows)
        for part in range(1, num_parts):
            stop = row + rows * part // num_parts
            yield _column_range(file, file_index, sha256, start, stop, num_rows)
            start = stop
        row += rows
        pending += size // max(num_parts, 1)
    if row > start:
        yield _column_range(file, file_index, sha256, start, row, num_rows)


def _column_range(file: InputFile, file_index: int, sha256: str, start: int, stop: int, num_rows: int) -> InputRange:
    content = hashlib.sha256(f"{file.kind}:{sha256}:{start}:{stop}".encode()).hexdigest()
    share = file.num_bytes * stop // num_rows - file.num_bytes * start // num_rows
    return InputRange(
        file_index=file_index,
        first_row=start + 1,
        form=COLUMNS,
        sha256=content,
        start=start,
        stop=stop,
        num_bytes=share,
    )


def _parquet_sizes(file: InputFile) -> list[tuple[int, int]]:
    metadata = parquet_file(file).metadata
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    return [(group.num_rows, group.total_byte_size) for group in groups]


def _arrow_sizes(file: InputFile) -> list[tuple[int, int]]:
    num_rows: int = arrow_table(file).num_rows
    return [(num_rows, file.num_bytes)] if num_rows else []
