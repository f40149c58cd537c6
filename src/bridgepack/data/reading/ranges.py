"""Cuts input files into ranges that are tokenised separately, each named by its content.

Where a file is cut depends only on the lines before, so a file that was appended to keeps all ranges but the last,
and a file has the same ranges whether it is compressed or not. The elements of a JSON array count as lines, and the
rows of a CSV file below its header.
"""

import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from bridgepack.data.reading.csv_files import DELIMITERS, CsvLines
from bridgepack.data.reading.inputs import ARROW, JSON_ARRAY, JSON_LINES, PARQUET, InputFile
from bridgepack.data.reading.lines import (
    MIN_BLOCK_BYTES,
    iter_array_lines,
    iter_line_blocks,
    open_stream,
    refuse_utf_16,
    stream_of,
)
from bridgepack.data.reading.remote import CloudFile
from bridgepack.data.reading.whole_objects import refuse_whole_object
from bridgepack.errors import DataError
from bridgepack.geometry import IntArray

#: Uncompressed bytes of a range of rows of a columnar file.
_MIN_COLUMNS_BYTES, _MAX_COLUMNS_BYTES = 1 << 21, 1 << 25
_RANGES_PER_FILE = 256
#: Bytes of a column read at a time, so that a row group is streamed and never held in memory.
_BUFFER_BYTES = 1 << 20
#: Arrow type of texts -> bytes per offset.
_OFFSET_BYTES = {"string": 4, "binary": 4, "large_string": 8, "large_binary": 8}


@dataclass(frozen=True, kw_only=True, slots=True)
class InputRange:
    """Consecutive rows of one file; every row of a file lies in exactly one range."""

    first_row: int  #: 1-based number of its first row (line, array element or row of a table)
    num_rows: int  #: its rows, blank lines included
    sha256: str  #: of its content; equal hashes mean equal rows
    start: int = 0  #: first byte of its lines, uncompressed; for a table, its 0-based first row
    stop: int = 0  #: one past its last byte or row
    payload: bytes | None = None  #: its lines, if the file can only be read from its beginning
    is_oversized: bool = False  #: it is one row larger than the recipe allows, and is not read
    max_row_bytes: int = 0  #: maximum bytes of a table's row, which is measured when it is read
    num_bytes: int = 0  #: its share of the file's size, for progress; 0 if unknown


def iter_ranges(file: InputFile, *, sha256: str, max_row_bytes: int) -> Iterator[InputRange]:
    """Yield a file's ranges in order; the cuts do not affect the rows.

    A row over `max_row_bytes` is its own range and is not read; `sha256` is of the file's bytes.

    Raises:
        DataError: the file cannot be read, is in UTF-16 or one object, or has too many blank lines in a row.
    """
    if is_table(file):
        yield from _table_ranges(file, sha256, max_row_bytes)
        return
    row = 1
    with open_stream(file.path, file.compression) as stream:
        # A row of a CSV file is measured where it is read: as a line of JSON it has other bytes.
        max_line_bytes = sys.maxsize - 1 if file.kind in DELIMITERS else max_row_bytes
        for start, stop, content in iter_line_blocks(_lines(file, stream, max_row_bytes), max_line_bytes):
            if content is not None and len(content) >= MIN_BLOCK_BYTES and content.isspace():
                raise DataError(f"{file.label}: {len(content):,} bytes of blank lines from row {row} on. Remove them.")
            if row == 1 and content is not None:
                refuse_utf_16(content, file.label)
                if file.kind == JSON_LINES:
                    refuse_whole_object(content, file)
            num_rows = 1 if content is None else content.count(b"\n") + (not content.endswith(b"\n"))
            yield InputRange(
                first_row=row,
                num_rows=num_rows,
                sha256=hashlib.sha256(b"oversized:%d" % (stop - start) if content is None else content).hexdigest(),
                start=start,
                stop=stop,
                payload=content if is_streamed(file) else None,
                is_oversized=content is None,
                num_bytes=0 if is_streamed(file) else stop - start,
            )
            row += num_rows


def _lines(file: InputFile, stream: IO[bytes], max_row_bytes: int) -> IO[bytes]:
    if file.kind == JSON_ARRAY:
        return stream_of(iter_array_lines(stream, file.label))
    if file.kind in DELIMITERS:
        return stream_of(CsvLines(stream, file.kind, file.label, max_row_bytes=max_row_bytes).blocks())
    return stream


def is_table(file: InputFile) -> bool:
    """Return whether a file has columns; otherwise it is read as lines."""
    return file.kind in {PARQUET, ARROW}


def is_streamed(file: InputFile) -> bool:
    """Return whether a file can only be read from its beginning, so that its ranges carry their rows."""
    return file.kind == JSON_ARRAY or file.kind in DELIMITERS or file.compression is not None


def _table_ranges(file: InputFile, sha256: str, max_row_bytes: int) -> Iterator[InputRange]:
    sizes = group_sizes(file)
    num_rows = sum(rows for rows, _ in sizes)
    for start, stop in _cut(sizes):
        yield InputRange(
            first_row=start + 1,
            num_rows=stop - start,
            sha256=hashlib.sha256(f"{file.kind}:{sha256}:{start}:{stop}".encode()).hexdigest(),
            start=start,
            stop=stop,
            max_row_bytes=max_row_bytes,
            num_bytes=file.num_bytes * stop // num_rows - file.num_bytes * start // num_rows,
        )


def group_sizes(file: InputFile) -> list[tuple[int, int]]:
    """Return (rows, bytes) of each row group of a Parquet file, or of a whole Arrow file."""
    if file.kind == PARQUET:
        metadata = parquet_file(file).metadata
        groups = map(metadata.row_group, range(metadata.num_row_groups))
        return [(group.num_rows, group.total_byte_size) for group in groups]
    num_rows: int = arrow_table(file).num_rows
    return [(num_rows, file.num_bytes)] if num_rows else []


def _cut(sizes: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) in rows: joins small groups of (rows, bytes), and cuts large ones."""
    total = sum(size for _, size in sizes)
    target = min(max(total // _RANGES_PER_FILE, _MIN_COLUMNS_BYTES), _MAX_COLUMNS_BYTES)
    start = row = pending = 0
    for rows, size in sizes:
        if pending and pending + size > target:
            yield start, row
            start, pending = row, 0
        num_parts = min(-(-size // target), rows)
        for part in range(1, num_parts):
            stop = row + rows * part // num_parts
            yield start, stop
            start = stop
        row += rows
        pending += size // max(num_parts, 1)
    if row > start:
        yield start, row


def parquet_file(file: InputFile) -> Any:
    """Return an open Parquet file; raises DataError if it is not one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        source = file.path.open("rb") if isinstance(file.path, CloudFile) else file.path
        return pq.ParquetFile(source, buffer_size=_BUFFER_BYTES, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file.label} is not a Parquet file: {one_line(error)}. Write it again.") from None


def arrow_table(file: InputFile) -> Any:
    """Return a file's rows, memory-mapped; reads Arrow's file format and the stream format that `datasets` writes.

    Raises:
        DataError: it is in neither format.
    """
    import pyarrow as pa

    try:
        source = pa.memory_map(str(file.path))
        try:
            table = pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:
            source.seek(0)
            table = pa.ipc.open_stream(source).read_all()
        table.validate()  # reading rows of damaged arrays would end the process
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file.label} is not an Arrow file: {one_line(error)}. Write it again.") from None
    return table


def arrow_batches(file: InputFile, start: int, stop: int, *, max_rows: int) -> Iterator[Any]:
    """Yield record batches of rows `start` (0-based) to `stop - 1` of an Arrow file, at most `max_rows` each.

    Raises:
        DataError: they are damaged.
    """
    import pyarrow as pa

    for batch in arrow_table(file).slice(start, stop - start).to_batches(max_chunksize=max_rows):
        try:
            for column in batch.columns:
                _check_offsets(column)
        except pa.ArrowInvalid as error:
            raise DataError(f"{file.label} is damaged after row {start}: {one_line(error)}. Write it again.") from None
        yield batch


def _check_offsets(array: Any) -> None:
    """Check that no offset in an array, or in one inside it, lies outside its values.

    Raises:
        pa.ArrowInvalid: one does; reading it would end the process.
    """
    import pyarrow as pa

    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    width = _OFFSET_BYTES.get(str(array.type))
    if not len(array):
        return
    if width is not None:
        _, offsets, values = array.buffers()
        places = np.frombuffer(offsets, f"i{width}", len(array) + 1, array.offset * width)
        _checked_bounds(places, values.size if values else 0)
    elif pa.types.is_struct(array.type):
        for index in range(array.type.num_fields):
            _check_offsets(array.field(index))
    elif isinstance(array, (pa.ListArray, pa.LargeListArray)):
        first, stop = _checked_bounds(array.offsets.to_numpy(), len(array.values))
        _check_offsets(array.values.slice(first, stop - first))
    else:
        array.validate(full=True)


def _checked_bounds(offsets: IntArray, num_values: int) -> tuple[int, int]:
    import pyarrow as pa

    if offsets[0] < 0 or offsets[-1] > num_values or (offsets[1:] < offsets[:-1]).any():
        raise pa.ArrowInvalid("an offset lies outside its values")
    return int(offsets[0]), int(offsets[-1])


def one_line(error: Exception) -> str:
    """Return the message of an error of Arrow's, which may have several lines."""
    return " ".join(str(error).split()).rstrip(". ")
