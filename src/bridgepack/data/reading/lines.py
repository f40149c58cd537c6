"""Cuts a byte stream into blocks of whole lines, at places that depend only on what was read so far."""

import io
from collections.abc import Iterator
from typing import IO

#: Bytes of a block: a 64th of what lies before it, between these. Early blocks are small, so that many workers share
#: a small file; late ones are large, so that a large file does not have too many.
MIN_BLOCK_BYTES, _MAX_BLOCK_BYTES = 1 << 20, 1 << 25
_GROWTH = 64
_PIECE_BYTES = 1 << 18

#: First byte and one past the last, newline included, in the uncompressed stream; and the lines, or None in place of
#: one that is too long to be held.
LineBlock = tuple[int, int, bytes | None]


def iter_line_blocks(stream: IO[bytes], max_line_bytes: int) -> Iterator[LineBlock]:
    """Yield a buffered stream's lines in blocks; a line of more than `max_line_bytes` is one of its own, not held."""
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
    """Read a stream up to its next newline, however far it is, and return how many bytes that was."""
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
