"""Samples an input file: windows of a few rows, as ranges that are read and tokenised like those of a build.

The windows depend on the file and a fixed seed only, so the same file always gives the same rows.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from bridgepack.data.reading.csv_files import DELIMITERS, CsvLines
from bridgepack.data.reading.inputs import PARQUET, InputFile
from bridgepack.data.reading.lines import expansion, iter_line_blocks, open_stream, skip_line
from bridgepack.data.reading.ranges import InputRange, group_sizes, is_streamed, is_table, iter_ranges
from bridgepack.data.reading.rows import lines_of, pick_evenly

#: Maximum windows per file, and the size of each: bytes of lines, or rows of a table and approximate bytes.
MAX_WINDOWS, _WINDOW_BYTES, _WINDOW_ROWS, _TABLE_BYTES = 64, 1 << 16, 128, 1 << 20
#: Files up to this many bytes are read whole; of a file that can only be read from its beginning, so many bytes.
_WHOLE_BYTES, _HEAD_BYTES = MAX_WINDOWS * _WINDOW_BYTES, 1 << 24
#: Seed of the windows' positions in a large file of lines.
_SEED = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class FileWindows:
    """The windows of a file and its total size."""

    windows: Iterator[Window]  #: in reading order: any number of first windows is spread over the file
    total: float  #: size of the whole file, in the unit of `Window.size`


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """A few consecutive rows."""

    part: InputRange
    size: int  #: bytes of lines, or rows of a table
    num_bytes: int  #: bytes of lines, or approximate uncompressed bytes of a table's rows
    has_row_numbers: bool = True  #: its first row's number is known, not estimated


def file_windows(file: InputFile, *, max_row_bytes: int) -> FileWindows:
    """Return windows of a file; together they cover all of a small file.

    Raises:
        DataError: the file cannot be read, now or while iterating over the windows.
    """
    if is_table(file):
        return _table_windows(file, max_row_bytes)
    size = file.num_bytes
    if not is_streamed(file) and size > _WHOLE_BYTES:
        return FileWindows(windows=_sought_windows(file, max_row_bytes), total=size)
    parts, num_bytes, is_whole = [], 0, True
    for part in iter_ranges(file, sha256="", max_row_bytes=max_row_bytes):
        if num_bytes >= _HEAD_BYTES:
            is_whole = False
            break
        parts.append(part)
        num_bytes += part.stop - part.start
    pieces = [piece for part in parts for piece in _pieces(file, part)]
    if not is_whole:
        factor = expansion(file.path, file.compression, _HEAD_BYTES) if file.compression else 1.0
        factor *= _growth(file) if file.kind in DELIMITERS else 1.0
        pieces, total = pieces[:: -(-len(pieces) // MAX_WINDOWS)], size * factor
    else:
        total = sum(piece.size for piece in pieces)
    return FileWindows(windows=_spread(pieces), total=total)


def _growth(file: InputFile) -> float:
    """Return bytes of the lines that a CSV file becomes per byte of its text, by its first lines."""
    with open_stream(file.path, file.compression) as stream:
        rows = CsvLines(stream, file.kind, file.label, max_row_bytes=0)
        return len(next(rows.blocks())) / rows.num_bytes


def _pieces(file: InputFile, part: InputRange) -> Iterator[Window]:
    """Yield the lines of a range as windows with their content."""
    if part.is_oversized:
        yield Window(part=part, size=part.stop - part.start, num_bytes=0)  # it is not read
        return
    lines, position, row = lines_of(file, part), 0, part.first_row
    while position < len(lines):
        end = lines.find(b"\n", position + _WINDOW_BYTES) + 1 or len(lines)
        yield _window(row, lines[position:end], part.start + position)
        row += lines.count(b"\n", position, end)
        position = end


def _sought_windows(file: InputFile, max_row_bytes: int) -> Iterator[Window]:
    """Yield windows of lines of a large file: at its beginning, and at a random place of each further part of it."""
    bytes_per_row = 0.0
    for start in _spread(_positions(file.num_bytes)):
        with open_stream(file.path, None) as stream:
            stream.seek(max(start - 1, 0))
            first = start and start - 1 + skip_line(stream)
            content = stream.read(max(start + _WINDOW_BYTES - first, 0))
            if content and not content.endswith(b"\n"):
                content += stream.readline(max_row_bytes + 1)
        for begin, end, lines in iter_line_blocks(io.BytesIO(content), max_row_bytes):
            row = 1 + round((first + begin) / bytes_per_row) if bytes_per_row else 1
            window = _window(row, content[begin:end], first + begin)
            bytes_per_row = bytes_per_row or window.size / window.part.num_rows
            part = replace(window.part, is_oversized=lines is None)
            yield replace(window, part=part, has_row_numbers=first + begin == 0)


def _positions(num_bytes: int) -> list[int]:
    begins = [num_bytes * place // MAX_WINDOWS for place in range(MAX_WINDOWS)]
    room = max(num_bytes // MAX_WINDOWS - _WINDOW_BYTES, 1)
    shifts = np.random.default_rng(_SEED).integers(0, room, MAX_WINDOWS - 1).tolist()
    return [0, *(begin + shift for begin, shift in zip(begins[1:], shifts, strict=True))]


def _window(row: int, lines: bytes, start: int) -> Window:
    part = InputRange(
        first_row=row,
        num_rows=lines.count(b"\n") + (not lines.endswith(b"\n")),
        sha256=hashlib.sha256(lines).hexdigest(),
        start=start,
        stop=start + len(lines),
        payload=lines,
    )
    return Window(part=part, size=len(lines), num_bytes=len(lines))


def _table_windows(file: InputFile, max_row_bytes: int) -> FileWindows:
    """Return windows of a table: the first rows of its row groups, where decoding can start."""
    sizes = group_sizes(file)
    groups = [rows for rows, _ in sizes]
    num_rows = sum(groups)
    mean_bytes = sum(num_bytes for _, num_bytes in sizes) / max(num_rows, 1)
    window_rows = min(_WINDOW_ROWS, max(int(_TABLE_BYTES / max(mean_bytes, 1)), 1))
    if file.kind == PARQUET and num_rows > MAX_WINDOWS * window_rows:
        begins = pick_evenly([*accumulate(groups, initial=0)][:-1], MAX_WINDOWS)
        room = window_rows * (MAX_WINDOWS // len(begins))
        starts = [start for begin in begins for start in range(begin, begin + room, window_rows)]
    else:
        starts = pick_evenly(range(0, num_rows, window_rows), MAX_WINDOWS)
    windows = [
        Window(
            part=InputRange(
                first_row=start + 1,
                num_rows=min(window_rows, num_rows - start),
                sha256="",
                start=start,
                stop=min(start + window_rows, num_rows),
                max_row_bytes=max_row_bytes,
            ),
            size=min(window_rows, num_rows - start),
            num_bytes=round(min(window_rows, num_rows - start) * mean_bytes),
        )
        for start in sorted(set(starts))
        if start < num_rows
    ]
    return FileWindows(windows=iter(windows) if file.kind == PARQUET else _spread(windows), total=num_rows)


def _spread[Item](items: Sequence[Item]) -> Iterator[Item]:
    """Yield items so that any number of first items is spread out: 0 1 2 3 4 -> 0 4 2 1 3."""
    width = max(len(items) - 1, 1).bit_length()
    order = (int(f"{number:0{width}b}"[::-1], 2) for number in range(1 << width))
    yield from (items[place] for place in order if place < len(items))
