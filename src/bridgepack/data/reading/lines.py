"""Cuts a byte stream into blocks of whole lines, at places that depend only on what was read so far."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

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
        content: the bytes; None for a line that is too long.
        num_lines: lines in it; the last line of a file may lack its newline.
    """

    start: int
    stop: int
    content: bytes | None
    num_lines: int


def iter_line_blocks(stream: IO[bytes], max_line_bytes: int) -> Iterator[LineBlock]:
    """Yield a stream's lines in blocks; a line of more than `max_line_bytes` is a block of its own, without content."""
    held, position = bytearray(), 0
    while _fill(held, stream, block_bytes(position)):
        size = min(block_bytes(position), len(held))
        last = held.rfind(_NEWLINE, 0, size) + 1
        end = size if last == size else _end_of_line(held, stream, last, size, max_line_bytes)
        lines = bytes(held[: last if end is None else end])
        yield from _blocks(lines, position, max_line_bytes)
        del held[: len(lines)]
        position += len(lines)
        if end is None:
            num_bytes = _skip_line(held, stream)
            yield LineBlock(start=position, stop=position + num_bytes, content=None, num_lines=1)
            position += num_bytes


def block_bytes(start: int) -> int:
    """Return how many bytes the block that starts here has, up to the end of a line."""
    return min(max(start // _GROWTH, MIN_BLOCK_BYTES), _MAX_BLOCK_BYTES)


def _fill(held: bytearray, stream: IO[bytes], num_bytes: int) -> bool:
    """Read until as many bytes are held; False where there are none at the end of the stream."""
    while len(held) < num_bytes:
        block = stream.read(num_bytes - len(held))
        if not block:
            break
        held += block
    return bool(held)


def _end_of_line(held: bytearray, stream: IO[bytes], begin: int, searched: int, max_line_bytes: int) -> int | None:
    """Return where the line that begins here ends, newline included, or None where it is too long to be held."""
    while True:
        found = held.find(_NEWLINE, searched)
        if found >= 0:
            return found + 1 if found - begin <= max_line_bytes else None
        searched = len(held)
        if searched - begin > max_line_bytes:
            return None
        _fill(held, stream, searched + _PIECE_BYTES)
        if len(held) == searched:
            return searched


def _skip_line(held: bytearray, stream: IO[bytes]) -> int:
    """Let go of what is held up to the next newline, however far it is, and return how much that was."""
    num_bytes = 0
    while _fill(held, stream, _PIECE_BYTES):
        found = held.find(_NEWLINE)
        size = len(held) if found < 0 else found + 1
        del held[:size]
        num_bytes += size
        if found >= 0:
            break
    return num_bytes


def _blocks(lines: bytes, position: int, max_line_bytes: int) -> Iterator[LineBlock]:
    """Yield whole lines, in parts around those that are too long."""
    done = 0
    for start, stop in _long_lines(lines, max_line_bytes) if len(lines) > max_line_bytes else []:
        if start > done:
            yield _block(lines[done:start], position + done)
        yield LineBlock(start=position + start, stop=position + stop, content=None, num_lines=1)
        done = stop
    if done < len(lines):
        yield _block(lines[done:], position + done)


def _long_lines(content: bytes, max_line_bytes: int) -> list[tuple[int, int]]:
    """Return (start, stop) of every line that is too long."""
    ends = np.flatnonzero(np.frombuffer(content, dtype=np.uint8) == _NEWLINE[0])
    if not len(ends) or ends[-1] + 1 < len(content):
        ends = np.append(ends, len(content))
    starts = np.concatenate(([0], ends[:-1] + 1))
    is_long = ends - starts > max_line_bytes
    stops = np.minimum(ends + 1, len(content))
    return list(zip(starts[is_long].tolist(), stops[is_long].tolist(), strict=True))


def _block(content: bytes, start: int) -> LineBlock:
    num_lines = content.count(_NEWLINE) + (not content.endswith(_NEWLINE))
    return LineBlock(start=start, stop=start + len(content), content=content, num_lines=num_lines)
