"""Cuts input files into ranges that can be read apart, and reads a range's rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bridgepack.data.decompression import iter_lines, open_stream
from bridgepack.data.inputs import ARROW, JSON_ARRAY, JSON_LINES, PARQUET, InputFile
from bridgepack.data.json_arrays import iter_element_texts
from bridgepack.errors import DataError, RowError
from bridgepack.records import DropReason, Example

_MIN_RANGE_BYTES = 1 << 20
#: Store files are memory-mapped together while rows are assembled, below the usual limit of 1024 open files.
_MAX_RANGES = 512
_PAYLOAD_BYTES = 1 << 22
_BATCH_ROWS = 256
_MAX_PAYLOAD_ROWS = 4096
_ARROW_RANGE_ROWS = 4096
#: Row, list of turns, turn.
_TURN_DEPTH = 2
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, kw_only=True, slots=True)
class InputRange:
    """Consecutive rows of one file; every row of a file lies in exactly one range.

    Attributes:
        file_index: position of the file in the split's list of inputs.
        first_row: 1-based number of its first row (line, row or array element).
        start: first byte (JSON Lines), row group (Parquet) or 0-based row (Arrow).
        stop: one past the last of them.
        lines: the rows themselves where the file cannot be entered in the middle (compressed, or a JSON array).
        num_bytes: its share of the file's size, for showing progress; 0 where that is not known.
    """

    file_index: int
    first_row: int
    start: int = 0
    stop: int = 0
    lines: tuple[bytes, ...] | None = None
    num_bytes: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class BlankLine:
    """A line of a JSON Lines file without anything on it; it is counted, and is no row."""


RowRead = tuple[int, Example | RowError | BlankLine]


def iter_ranges(file: InputFile, file_index: int) -> Iterator[InputRange]:
    """Yield a file's ranges in order; where they are cut has no influence on the rows.

    Raises:
        DataError: when the file cannot be read.
    """
    if file.kind == PARQUET:
        yield from _parquet_ranges(file, file_index)
    elif file.kind == ARROW:
        yield from _arrow_ranges(file, file_index)
    elif file.kind == JSON_LINES and file.compression is None:
        yield from _line_ranges(file, file_index)
    else:
        yield from _payload_ranges(file, file_index)


def has_known_size(file: InputFile) -> bool:
    """Say whether the ranges of a file tell their share of its size."""
    return file.compression is None and file.kind != JSON_ARRAY


def read_range(file: InputFile, part: InputRange) -> Iterator[RowRead]:
    """Yield (1-based row number, example or the row's error or a blank line) for each row of a range, in order.

    Raises:
        DataError: when the file cannot be read, or has changed since the ranges were made.
    """
    if file.kind == PARQUET:
        yield from _numbered(_parquet_rows(file, part), part)
    elif file.kind == ARROW:
        yield from _numbered(_arrow_rows(file, part), part)
    elif part.lines is not None:
        yield from _parsed(part.lines, part)
    else:
        yield from _parsed(_lines_between(file, part.start, part.stop), part)


def _parsed(lines: Iterable[bytes], part: InputRange) -> Iterator[RowRead]:
    for offset, line in enumerate(lines):
        row = part.first_row + offset
        yield row, _from_line(line, part.file_index, row)


def _line_ranges(file: InputFile, file_index: int) -> Iterator[InputRange]:
    target = max(_MIN_RANGE_BYTES, file.num_bytes // _MAX_RANGES)
    start, row = 0, 1
    with open_stream(file.path, None) as stream:
        while True:
            block = stream.read(target)
            if not block:
                return
            block += stream.readline() if not block.endswith(b"\n") else b""
            size = len(block)
            yield InputRange(file_index=file_index, first_row=row, start=start, stop=start + size, num_bytes=size)
            start += size
            row += block.count(b"\n")


def _lines_between(file: InputFile, start: int, stop: int) -> Iterator[bytes]:
    with open_stream(file.path, None) as stream:
        stream.seek(start)
        while start < stop:
            line = stream.readline()
            if not line:
                raise DataError(
                    f"{file.label} became shorter while it was read. Build again once nothing writes to it."
                )
            start += len(line)
            yield line


def _payload_ranges(file: InputFile, file_index: int) -> Iterator[InputRange]:
    rows: list[bytes] = []
    num_bytes, first = 0, 1
    for line in _array_elements(file) if file.kind == JSON_ARRAY else _lines(file):
        rows.append(line)
        num_bytes += len(line)
        if num_bytes >= _PAYLOAD_BYTES or len(rows) >= _MAX_PAYLOAD_ROWS:
            yield InputRange(file_index=file_index, first_row=first, lines=tuple(rows))
            first, num_bytes, rows = first + len(rows), 0, []
    if rows:
        yield InputRange(file_index=file_index, first_row=first, lines=tuple(rows))


def _lines(file: InputFile) -> Iterator[bytes]:
    with open_stream(file.path, file.compression) as stream:
        yield from iter_lines(stream)


def _array_elements(file: InputFile) -> Iterator[bytes]:
    with open_stream(file.path, file.compression) as stream:
        try:
            yield from iter_element_texts(stream)
        except ValueError as error:
            raise DataError(
                f"{file.label} is not a JSON array of objects: {error}. Correct it, or write one object a line "
                "(.jsonl), where a broken line costs only that row."
            ) from None


def _parquet_ranges(file: InputFile, file_index: int) -> Iterator[InputRange]:
    metadata = _parquet(file).metadata
    row = 1
    for group in range(metadata.num_row_groups):
        num_rows = metadata.row_group(group).num_rows
        share = file.num_bytes * num_rows // max(metadata.num_rows, 1)
        yield InputRange(file_index=file_index, first_row=row, start=group, stop=group + 1, num_bytes=share)
        row += num_rows


def _parquet_rows(file: InputFile, part: InputRange) -> Iterator[Any]:
    import pyarrow as pa

    try:
        for batch in _parquet(file).iter_batches(batch_size=_BATCH_ROWS, row_groups=range(part.start, part.stop)):
            yield from _rows_of(batch)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file.label}: row group {part.start} cannot be read: {error}. Write it again.") from None


def _parquet(file: InputFile) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(file.path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file.label} is not a Parquet file: {error}. Write it again.") from None


def _arrow_ranges(file: InputFile, file_index: int) -> Iterator[InputRange]:
    num_rows = _arrow_table(file).num_rows
    for start in range(0, num_rows, _ARROW_RANGE_ROWS):
        stop = min(start + _ARROW_RANGE_ROWS, num_rows)
        share = file.num_bytes * (stop - start) // num_rows
        yield InputRange(file_index=file_index, first_row=start + 1, start=start, stop=stop, num_bytes=share)


def _arrow_rows(file: InputFile, part: InputRange) -> Iterator[Any]:
    table = _arrow_table(file).slice(part.start, part.stop - part.start)
    for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
        yield from _rows_of(batch)


def _arrow_table(file: InputFile) -> Any:
    """Return a file's rows, memory-mapped: Arrow's file format, or the stream format that `datasets` writes."""
    import pyarrow as pa

    try:
        source = pa.memory_map(str(file.path))
        try:
            return pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:
            source.seek(0)
            return pa.ipc.open_stream(source).read_all()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file.label} is not an Arrow file: {error}. Write it again.") from None


def _numbered(values: Iterator[Any], part: InputRange) -> Iterator[RowRead]:
    for offset, value in enumerate(values):
        row = part.first_row + offset
        is_bad = isinstance(value, RowError)
        yield row, value if is_bad else _from_value(_without_nulls(value), part.file_index, row)


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


def _from_line(line: bytes, file_index: int, row: int) -> Example | RowError | BlankLine:
    if not line.strip(b" \t\r\n\xef\xbb\xbf"):
        return BlankLine()
    try:
        text = line.decode("utf-8-sig")
        value = json.loads(text)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        return RowError(DropReason.INVALID_JSON, f"not UTF-8: {error}")
    except UnicodeEncodeError:
        return RowError(DropReason.INVALID_JSON, "a \\u escape is half of a surrogate pair, which is no text")
    except (ValueError, RecursionError) as error:
        start = line[:60].decode(errors="replace")
        return RowError(DropReason.INVALID_JSON, f"{error}; the line begins {start!r}")
    return _from_value(value, file_index, row)


def _from_value(value: Any, file_index: int, row: int) -> Example | RowError:
    if not isinstance(value, Mapping):
        return RowError(DropReason.NOT_AN_OBJECT, f"a {type(value).__name__}; a row must be an object")
    return Example(file_index=file_index, row=row, columns=value)
