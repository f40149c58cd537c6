"""Cuts a byte stream into blocks of whole lines, at places that depend only on what was read so far."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

#: Bytes of a block: a 64th of what lies before it, between these. Early blocks are small, so that many workers share
#: a small file; late ones are large, so that a large file does not have too many.
MIN_BLOCK_BYTES, _MAX_BLOCK_BYTES = 1 << 20, 1 << 25
_GROWTH = 64
_PIECE_BYTES = 1 << 18
_NEWLINE = b"\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class LineBlock:
    """Whole lines, or one line that is too long to be held.

    Attributes:
        start: first byte, counted in the uncompressed stream.
        stop: one past the last byte, newline included.
        content: the bytes, valid until the next block is asked for; None for a line that is too long.
        num_lines: lines in it; the last line of a file may lack its newline.
    """

    start: int
    stop: int
    content: memoryview | None
    num_lines: int


def iter_line_blocks(stream: IO[bytes], max_line_bytes: int) -> Iterator[LineBlock]:
    """Yield a stream's lines in blocks; a line of more than `max_line_bytes` is a block of its own, without content."""
    window = _Window(stream)
    while window.fill(block_bytes(window.position)):
        size = min(block_bytes(window.position), window.size)
        whole = window.end_of_lines(size)
        end = window.end_of_line(whole, size, max_line_bytes)
        yield from _without_long_lines(window, whole if end is None else end, max_line_bytes)
        if end is None:
            start = window.position
            window.skip_line()
            yield LineBlock(start=start, stop=window.position, content=None, num_lines=1)


def block_bytes(start: int) -> int:
    """Return how many bytes the block that starts here has, up to the end of a line."""
    return min(max(start // _GROWTH, MIN_BLOCK_BYTES), _MAX_BLOCK_BYTES)


class _Window:
    """The bytes of a stream from a position on, as far as they were read; one buffer is used again and again."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream: Any = stream
        self._buffer = bytearray(2 * MIN_BLOCK_BYTES)
        self._start = self._stop = 0
        self.position = 0

    @property
    def size(self) -> int:
        return self._stop - self._start

    def fill(self, num_bytes: int) -> bool:
        """Read until the window has as many bytes; False where it is empty at the end of the stream."""
        if self._start and len(self._buffer) - self._start < num_bytes:
            self._buffer[: self.size] = self._buffer[self._start : self._stop]
            self._start, self._stop = 0, self.size
        if len(self._buffer) < num_bytes:
            self._buffer = self._buffer[: self._stop] + bytes(num_bytes - self._stop)
        with memoryview(self._buffer) as view:
            while self.size < num_bytes:
                num_read = self._stream.readinto(view[self._stop : self._start + num_bytes])
                if not num_read:
                    break
                self._stop += num_read
        return self.size > 0

    def end_of_lines(self, size: int) -> int:
        """Return how many of the first `size` bytes are whole lines."""
        return max(self._buffer.rfind(_NEWLINE, self._start, self._start + size) + 1 - self._start, 0)

    def end_of_line(self, begin: int, size: int, max_line_bytes: int) -> int | None:
        """Return where the line that begins here ends, newline included, or None where it is too long to be held."""
        if begin == size:
            return size
        searched = size
        while True:
            found = self._buffer.find(_NEWLINE, self._start + searched, self._stop)
            if found >= 0:
                return found + 1 - self._start if found - self._start - begin <= max_line_bytes else None
            searched = self.size
            if searched - begin > max_line_bytes:
                return None
            self.fill(searched + _PIECE_BYTES)
            if self.size == searched:
                return searched

    def content(self, start: int, stop: int) -> memoryview:
        """Return a part of the window."""
        return memoryview(self._buffer)[self._start + start : self._start + stop]

    def advance(self, num_bytes: int) -> None:
        """Let the window begin further on."""
        self._start += num_bytes
        self.position += num_bytes

    def skip_line(self) -> None:
        """Advance past the next newline, however far it is."""
        while True:
            found = self._buffer.find(_NEWLINE, self._start, self._stop)
            self.advance(self.size if found < 0 else found + 1 - self._start)
            if found >= 0 or not self.fill(_PIECE_BYTES):
                return


def _without_long_lines(window: _Window, size: int, max_line_bytes: int) -> Iterator[LineBlock]:
    """Yield the window's first bytes, whole lines, in parts around those that are too long, and advance past them."""
    done = 0
    for first, stop in _long_lines(window.content(0, size), max_line_bytes) if size > max_line_bytes else []:
        if first > done:
            yield _block(window, first - done)
        window.advance(stop - first)
        yield LineBlock(start=window.position - (stop - first), stop=window.position, content=None, num_lines=1)
        done = stop
    if done < size:
        yield _block(window, size - done)


def _long_lines(content: memoryview, max_line_bytes: int) -> list[tuple[int, int]]:
    """Return (start, stop) of every line that is too long."""
    ends = np.flatnonzero(np.frombuffer(content, dtype=np.uint8) == _NEWLINE[0])
    if not len(ends) or ends[-1] + 1 < len(content):
        ends = np.append(ends, len(content))
    starts = np.concatenate(([0], ends[:-1] + 1))
    is_long = ends - starts > max_line_bytes
    stops = np.minimum(ends + 1, len(content))
    return list(zip(starts[is_long].tolist(), stops[is_long].tolist(), strict=True))


def _block(window: _Window, size: int) -> LineBlock:
    content = window.content(0, size)
    start = window.position
    window.advance(size)
    num_lines = int(np.count_nonzero(np.frombuffer(content, dtype=np.uint8) == _NEWLINE[0]))
    num_lines += content[-1] != _NEWLINE[0]
    return LineBlock(start=start, stop=start + size, content=content, num_lines=num_lines)
