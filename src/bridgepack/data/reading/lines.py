"""Cuts a byte stream into blocks of whole lines, at positions that depend only on the bytes before them."""

import io
from collections.abc import Iterator
from typing import IO

#: Limits of a block's size in bytes, which is 1/64 of the bytes before it. Early blocks are small, so that many
#: workers share a small file; late ones are large, so that a large file does not get too many.
MIN_BLOCK_BYTES, _MAX_BLOCK_BYTES = 1 << 20, 1 << 25
_GROWTH = 64
_PIECE_BYTES = 1 << 18

#: (start, stop) in bytes of the uncompressed stream, newline included, and the lines; None for a line that is too
#: long to hold in memory.
LineBlock = tuple[int, int, bytes | None]


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
