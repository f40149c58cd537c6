"""Byte streams of lines: opens plain and compressed files, turns JSON arrays into lines, cuts blocks of whole lines.

A JSON array gives one line per element: `[{"a": 1}, 2]` -> `{"a": 1}`, then `2`. The scan looks only at quotes,
brackets and commas, so an element of any size takes no more memory than a block. Whether an element is valid JSON shows
when its line is parsed.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

from bridgepack.data.reading.remote import Readable
from bridgepack.errors import DataError, RowError
from bridgepack.records import DropReason

_BUFFER_BYTES = 1 << 20
_CODECS = {"gz": "gzip", "zst": "zstd"}
#: Text expands 3 to 20 times, in extreme cases 100 times; gzip can reach 1032 times, zstandard 30,000 times.
_MAX_EXPANSION = 300
_ALWAYS_ALLOWED_BYTES = 1 << 30
_BLOCK_BYTES = 1 << 20
_SPACE = b" \t\r\n"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
#: How UTF-16 begins: with its byte order marks, or without one a row.
_WIDE = (b"\xff\xfe", b"\xfe\xff", '{"'.encode("utf-16-le"), '{"'.encode("utf-16-be"))
#: Kinds of bytes: quote, opening and closing brackets, comma and newline; 0 for all others.
_KINDS = bytes(b'"{[}],\n'.find(byte) + 1 for byte in range(256))
_QUOTE, _COMMA, _NEWLINE = 1, 6, 7
#: Change in nesting depth per kind.
_STEPS = np.array([0, 0, 1, 1, -1, -1, 0, 0])
#: Limits of a block's size in bytes, which is 1/64 of the bytes before it. Early blocks are small, so that many
#: workers share a small file; late ones are large, so that a large file does not get too many.
MIN_BLOCK_BYTES, _MAX_BLOCK_BYTES = 1 << 20, 1 << 25
_GROWTH = 64
_PIECE_BYTES = 1 << 18

#: (start, stop) in bytes of the uncompressed stream, newline included, and the lines; None for a line that is too
#: long to hold in memory.
LineBlock = tuple[int, int, bytes | None]


@contextmanager
def open_stream(path: Readable, compression: str | None) -> Iterator[IO[bytes]]:
    """Yield a stream of a file's uncompressed bytes; `compression` is `gz`, `zst` or None.

    Raises:
        DataError: it cannot be opened, or its compressed data is broken or truncated.
    """
    try:
        with path.open("rb", buffering=_BUFFER_BYTES) as raw:
            yield raw if compression is None else stream_of(_expand(raw, path, _CODECS[compression]))
    except OSError as error:
        if compression is not None and error.errno is None:  # file errors have a number
            raise DataError(f"{path} is incomplete {compression} data: {error}. Fetch or compress it again.") from None
        raise DataError(
            f"{path} cannot be read: {error.strerror or error}. Check the file and its permissions."
        ) from None


def expansion(path: Readable, compression: str, num_bytes: int) -> float:
    """Return uncompressed / compressed size of a file, estimated from its first `num_bytes`.

    Raises:
        DataError, OSError: the file cannot be read.
    """
    num_expanded = position = 0
    with path.open("rb", buffering=_BUFFER_BYTES) as raw:
        for block in _expand(raw, path, _CODECS[compression]):
            num_expanded, position = num_expanded + len(block), raw.tell()
            if num_expanded >= num_bytes:
                break
    return num_expanded / max(position, 1)


def stream_of(blocks: Iterator[bytes]) -> IO[bytes]:
    """Return a stream of blocks of bytes, which takes the next block only when it needs it."""
    return io.BufferedReader(_Blocks(blocks), _BUFFER_BYTES)


class _Blocks(io.RawIOBase):
    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = filter(None, blocks)
        self._pending = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        self._pending = self._pending or memoryview(next(self._blocks, b""))
        size = min(len(target), len(self._pending))
        target[:size] = self._pending[:size]
        self._pending = self._pending[size:]
        return size


def _expand(raw: IO[bytes], path: Readable, codec: str) -> Iterator[bytes]:
    """Yield uncompressed bytes; raises DataError for a decompression bomb."""
    import pyarrow as pa  # slow to import, and few files are compressed

    content = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), codec)
    num_bytes = 0
    while block := content.read(_BUFFER_BYTES):
        num_bytes += len(block)
        if num_bytes > max(_ALWAYS_ALLOWED_BYTES, _MAX_EXPANSION * raw.tell()):
            raise DataError(
                f"{path} expands to {num_bytes:,} bytes or more, over {_MAX_EXPANSION} times its size, as no data set "
                "does. If that is intended, decompress it yourself and name the result."
            )
        yield block


def iter_array_lines(stream: IO[bytes], label: str) -> Iterator[bytes]:
    """Yield the elements of an array as lines, block by block; a block's last line may continue in the next.

    The stream's first non-blank character is a bracket; error messages call the stream `label`.

    Raises:
        DataError: the array is invalid; says why.
    """
    blocks = iter(lambda: stream.read(_BLOCK_BYTES), b"")
    begin = b""
    for block in blocks:
        begin = (begin + block).lstrip(_BYTE_ORDER_MARK + _SPACE)
        if begin:
            break
    scan = _Scan(label)
    yield scan.lines(begin[1:])
    yield from map(scan.lines, blocks)
    scan.finish()


def broken_array(label: str, reason: str) -> DataError:
    """Return the error for an invalid array, or for an array with an element that is not JSON."""
    return DataError(
        f"{label} is not a JSON array of objects: {reason}. Correct it, or write one object a line (.jsonl), where a "
        "broken line costs only that row."
    )


class _Scan:
    """State of a scan: how many brackets are open, whether a string is open, and what came last."""

    def __init__(self, label: str) -> None:
        self._label, self._depth, self._num_commas, self._last = label, 1, 0, b""
        self._is_inside = self._is_escaped = False

    def lines(self, block: bytes) -> bytes:
        """Return a block as lines: removes blanks between elements, and swaps the commas there with newlines."""
        if self._depth == 0:
            self._refuse_rest(block)
            return b""
        places, kinds, depths, is_inside = self._structure(block)
        ends = places[depths == 0]
        size = int(ends[0]) if len(ends) else len(block)
        content = np.frombuffer(block, dtype=np.uint8)[:size].copy()
        is_newline = (kinds == _NEWLINE) & (places < size)
        content[places[is_newline]] = np.where(is_inside[is_newline], 0, ord(" "))  # 0 is not valid JSON
        commas = places[(kinds == _COMMA) & (depths == 1) & ~is_inside & (places < size)]
        content[commas] = ord("\n")
        self._num_commas += len(commas)
        before = self._guard
        if len(depths):
            self._depth, self._is_inside = int(depths[-1]), bool(is_inside[-1])
        after = b"" if len(ends) else self._guard
        lines = (before + content.tobytes() + after).split(b"\n")
        elements = b"\n".join([line.strip(b" \t\r") for line in lines])[len(before) :].removesuffix(after)
        self._last = elements[-1:] or self._last
        if len(ends):
            self._depth = 0
            self._refuse_rest(block[size + 1 :], closing=block[size : size + 1])
        return elements

    def finish(self) -> None:
        """Refuse an incomplete array."""
        if self._depth:
            raise self._array_error("the array ends early")
        if self._last == b"\n":
            raise self._array_error("an element is missing after the comma")

    @property
    def _guard(self) -> bytes:
        """A byte that protects the blanks beside it inside an element; empty between elements."""
        return b"" if self._depth == 1 and not self._is_inside else b"|"

    def _refuse_rest(self, remainder: bytes, closing: bytes = b"]") -> None:
        if closing != b"]":
            raise self._array_error(f"it is followed by {closing.decode()}")
        if remainder.strip(_SPACE):
            raise self._array_error("more text follows the end of the array")

    def _array_error(self, reason: str) -> DataError:
        return broken_array(self._label, f"element {self._num_commas + 1}: {reason}")

    def _structure(self, block: bytes) -> tuple[Any, Any, Any, Any]:
        """Return (positions of structural bytes, their kinds, depth after each, whether a string is open then)."""
        if self._is_escaped and block[:1] in (b'"', b"\\"):
            block = b" " + block[1:]
        pairs_gone = block.replace(b"\\\\", b"  ")
        self._is_escaped = pairs_gone.endswith(b"\\")
        kinds = np.frombuffer(pairs_gone.replace(b'\\"', b"  ").translate(_KINDS), dtype=np.uint8)
        places = np.flatnonzero(kinds)
        kinds = kinds[places]
        is_inside = (np.cumsum(kinds == _QUOTE) + self._is_inside) % 2 == 1
        depths = self._depth + np.cumsum(np.where(is_inside, 0, _STEPS[kinds]))
        return places, kinds, depths, is_inside


def refuse_utf_16(beginning: bytes, label: str) -> None:
    """Raise DataError if a file, of which this is the beginning, is in UTF-16: every row of it would be dropped."""
    if beginning.startswith(_WIDE):
        raise DataError(f"{label} is in UTF-16; allowed: UTF-8. Save it as UTF-8.")


def iter_line_blocks(stream: IO[bytes], max_line_bytes: int) -> Iterator[LineBlock]:
    """Yield a buffered stream's lines in blocks; a line over `max_line_bytes` is its own block, without content."""
    position = 0
    while lines := stream.read(min(max(position // _GROWTH, MIN_BLOCK_BYTES), _MAX_BLOCK_BYTES)):
        begin = lines.rfind(b"\n") + 1
        last_line = lines[begin:]
        if last_line:
            last_line += stream.readline(max(max_line_bytes + 1 - len(last_line), 0))
        is_too_long = _is_too_long(last_line, max_line_bytes)
        yield from _around_long_lines(lines[:begin] + (b"" if is_too_long else last_line), position, max_line_bytes)
        position += begin + len(last_line)
        if is_too_long:
            start = position - len(last_line)
            position += 0 if last_line.endswith(b"\n") else skip_line(stream)
            yield start, position, None


def skip_line(stream: IO[bytes]) -> int:
    """Return the number of bytes up to and including the stream's next newline, after skipping them."""
    num_bytes = 0
    while piece := stream.readline(_PIECE_BYTES):
        num_bytes += len(piece)
        if piece.endswith(b"\n"):
            break
    return num_bytes


def _around_long_lines(lines: bytes, position: int, max_line_bytes: int) -> Iterator[LineBlock]:
    start = stop = 0
    for line in io.BytesIO(lines) if len(lines) > max_line_bytes else [lines]:
        if _is_too_long(line, max_line_bytes):
            if start < stop:
                yield position + start, position + stop, lines[start:stop]
            start = stop + len(line)
            yield position + stop, position + start, None
        stop += len(line)
    if start < stop:
        yield position + start, position + stop, lines[start:stop]


def _is_too_long(line: bytes, max_line_bytes: int) -> bool:
    return len(line) - line.endswith(b"\n") > max_line_bytes


def too_large(num_bytes: int) -> RowError:
    """Return why a row of so many bytes is dropped."""
    return RowError(DropReason.ROW_TOO_LARGE, f"the row has {num_bytes:,} bytes, more than data.max_row_bytes")
