"""Reads the rows of a range of an input file."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from bridgepack.data.columnar import arrow_table, parquet_file
from bridgepack.data.decompression import open_stream
from bridgepack.data.inputs import PARQUET, InputFile
from bridgepack.data.json_rows import read_line, row_of
from bridgepack.data.ranges import COLUMNS, ELEMENTS, LINES, OVERSIZED, InputRange
from bridgepack.errors import DataError, RowError
from bridgepack.records import DropReason, Example

_BATCH_ROWS = 256
#: Row, list of turns, turn.
_TURN_DEPTH = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class BlankLine:
    """A line of a JSON Lines file without anything on it; it is counted, and is no row."""


RowRead = tuple[int, Example | RowError | BlankLine]
_BLANK_LINE = BlankLine()


def read_range(file: InputFile, part: InputRange) -> Iterator[RowRead]:
    """Yield (1-based row number, example or the row's error or a blank line) for each row of a range, in order.

    Raises:
        DataError: when the file cannot be read, or has changed since the ranges were made.
    """
    if part.form == OVERSIZED:
        detail = f"{part.num_oversized_bytes:,} bytes; data.max_row_bytes allows fewer"
        yield part.first_row, RowError(DropReason.ROW_TOO_LARGE, detail)
    elif part.form == COLUMNS:
        rows = _parquet_rows(file, part) if file.kind == PARQUET else _arrow_rows(file, part)
        yield from _numbered(rows, part)
    elif part.form == ELEMENTS:
        yield from _parsed(part.elements or (), part)
    else:
        yield from _parsed(io.BytesIO(_content(file, part)), part)


def rows_apart(file: InputFile, part: InputRange) -> Iterator[Iterable[RowRead]]:
    """Yield each row of a range as rows of its own, which are parsed only when they are asked for.

    Raises:
        DataError: when the file cannot be read, or has changed since the ranges were made.
    """
    if part.form == ELEMENTS or part.form == LINES:
        texts = part.elements if part.form == ELEMENTS else io.BytesIO(_content(file, part))
        for offset, text in enumerate(texts or ()):
            yield _parsed([text], replace(part, first_row=part.first_row + offset))
    else:
        yield from ([item] for item in read_range(file, part))


def _content(file: InputFile, part: InputRange) -> bytes:
    """Return the lines of a range; what is read is what the range was named after."""
    content = part.payload
    if content is None:
        with open_stream(file.path, None) as stream:
            stream.seek(part.start)
            content = stream.read(part.stop - part.start)
    if hashlib.sha256(content).hexdigest() != part.sha256:
        raise DataError(f"{file.label} changed while it was read. Build again once nothing writes to it.")
    return content


def _parsed(lines: Iterable[bytes], part: InputRange) -> Iterator[RowRead]:
    for offset, line in enumerate(lines):
        row = part.first_row + offset
        found = read_line(line, part.file_index, row)
        yield row, _BLANK_LINE if found is None else found


def _parquet_rows(file: InputFile, part: InputRange) -> Iterator[Any]:
    import pyarrow as pa

    parquet = parquet_file(file)
    row = 0
    for group in range(parquet.metadata.num_row_groups):
        num_rows = parquet.metadata.row_group(group).num_rows
        if row < part.stop and row + num_rows > part.start:
            try:
                batches = parquet.iter_batches(batch_size=_BATCH_ROWS, row_groups=[group])
                yield from _rows_between(batches, part.start - row, part.stop - row)
            except (pa.ArrowException, OSError) as error:
                raise DataError(f"{file.label}: row group {group} cannot be read: {error}. Write it again.") from None
        row += num_rows


def _rows_between(batches: Iterable[Any], start: int, stop: int) -> Iterator[Any]:
    row = 0
    for batch in batches:
        if row + batch.num_rows > start:
            first = max(start - row, 0)
            yield from _rows_of(batch.slice(first, min(stop - row, batch.num_rows) - first))
        row += batch.num_rows
        if row >= stop:
            return


def _arrow_rows(file: InputFile, part: InputRange) -> Iterator[Any]:
    table = arrow_table(file).slice(part.start, part.stop - part.start)
    for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
        yield from _rows_of(batch)


def _numbered(values: Iterator[Any], part: InputRange) -> Iterator[RowRead]:
    for offset, value in enumerate(values):
        row = part.first_row + offset
        is_bad = isinstance(value, RowError)
        yield row, value if is_bad else row_of(_without_nulls(value), part.file_index, row)


def _rows_of(batch: Any) -> Iterator[Any]:
    """Yield a record batch's rows; one whose text is not UTF-8, which Arrow does not check, as its error."""
    try:
        yield from batch.to_pylist(maps_as_pydicts="lossy")
    except UnicodeDecodeError as error:
        if batch.num_rows > 1:
            for index in range(batch.num_rows):
                yield from _rows_of(batch.slice(index, 1))
        else:
            yield RowError(DropReason.INVALID_FIELD, f"not UTF-8: {error}")


def _without_nulls(value: Any, depth: int = 0) -> Any:
    """Return a row without the null fields that columnar files put wherever another row has a value.

    `content` of a turn stays, because a turn with null content is not a turn without content.
    """
    if isinstance(value, dict):
        is_turn = depth == _TURN_DEPTH
        kept = {key: item for key, item in value.items() if item is not None or (is_turn and key == "content")}
        return {key: _without_nulls(item, depth + 1) for key, item in kept.items()}
    if isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        return [_without_nulls(item, depth + 1) for item in value]
    return value
