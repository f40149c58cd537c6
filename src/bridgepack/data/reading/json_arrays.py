"""Turns a JSON array into one line for each element as it streams by: `[{"a": 1}, 2]` -> `{"a": 1}`, then `2`.

Only quotes, brackets and commas are looked at, block by block, so an element of any size takes no more memory than a
block. Whether an element is JSON is seen when its line is parsed.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from bridgepack.errors import DataError

_BLOCK_BYTES = 1 << 20
_SPACE = b" \t\r\n"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
#: Kinds of bytes: 0 for all others, then quote, brackets that open and close, comma and newline.
_KINDS = bytes(b'"{[}],\n'.find(byte) + 1 for byte in range(256))
_QUOTE, _COMMA, _NEWLINE = 1, 6, 7
#: What a kind adds to the depth.
_STEPS = np.array([0, 0, 1, 1, -1, -1, 0, 0])
_IS_SPACE = np.isin(np.arange(256), list(_SPACE))

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]


class ArrayLines(io.RawIOBase):
    """The lines of an array, as a stream."""

    def __init__(self, stream: IO[bytes], label: str) -> None:
        """Take a stream whose first character, blanks apart, is a bracket, and what messages call it."""
        self._blocks = _iter_lines(stream, label)
        self._pending = memoryview(b"")

    def readable(self) -> bool:
        """Say that it can be read from."""
        return True

    def readinto(self, target: Any) -> int:
        """Fill the target as far as one block goes; 0 at the end.

        Raises:
            DataError: saying what is wrong with the array.
        """
        while not self._pending:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._pending = memoryview(block)
        size = min(len(target), len(self._pending))
        target[:size] = self._pending[:size]
        self._pending = self._pending[size:]
        return size


def broken_array(label: str, reason: str) -> DataError:
    """Return the error of an array that is not one, or one of whose elements is no JSON."""
    return DataError(
        f"{label} is not a JSON array of objects: {reason}. Correct it, or write one object a line (.jsonl), where a "
        "broken line costs only that row."
    )


def _iter_lines(stream: IO[bytes], label: str) -> Iterator[bytes]:
    blocks = iter(lambda: stream.read(_BLOCK_BYTES), b"")
    begin = b""
    for block in blocks:
        begin = (begin + block).lstrip(_BYTE_ORDER_MARK + _SPACE)
        if begin:
            break
    scan = _Scan(label)
    yield scan.lines(begin[1:])
    for block in blocks:
        yield scan.lines(block)
    scan.finish()


class _Scan:
    """Where in an array a stream is: how many brackets are open, whether a string is, and what came last."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._depth = 1
        self._is_inside = self._is_escaped = False
        self._num_commas = 0
        self._last = b""

    def lines(self, block: bytes) -> bytes:
        """Return a block as lines: blanks between elements go, and the commas there and newlines are exchanged."""
        if self._depth == 0:
            self._refuse_rest(block)
            return b""
        places, kinds, depths, is_inside = self._structure(block)
        ends = np.flatnonzero(depths == 0)
        size = int(places[ends[0]]) if len(ends) else len(block)
        content = np.frombuffer(block, dtype=np.uint8)[:size].copy()
        is_newline, is_between = (kinds == _NEWLINE) & (places < size), (depths == 1) & ~is_inside
        content[places[is_newline]] = np.where(is_inside[is_newline], 0, ord(" "))  # 0 is no JSON
        commas = places[is_between & (kinds == _COMMA) & (places < size)]
        content[commas] = ord("\n")
        first = self._depth == 1 and not self._is_inside
        blanks = _blanks(content, np.append(0, places), np.append(first, is_between), commas)
        found = np.delete(content, blanks).tobytes()
        self._num_commas += len(commas)
        self._last = found[-1:] or self._last
        self._advance(block, depths, is_inside)
        if len(ends):
            self._depth = 0
            self._refuse_rest(block[size + 1 :], closing=block[size : size + 1])
        return found

    def finish(self) -> None:
        """Refuse an array that is not whole."""
        if self._depth:
            raise self._broken("the array ends early")
        if self._last == b"\n":
            raise self._broken("there is none after the comma")

    def _refuse_rest(self, rest: bytes, closing: bytes = b"]") -> None:
        if closing != b"]":
            raise self._broken(f"it is followed by {closing.decode()}")
        if rest.strip(_SPACE):
            raise self._broken("there is more after it and the array's end")

    def _broken(self, reason: str) -> DataError:
        return broken_array(self._label, f"element {self._num_commas + 1}: {reason}")

    def _structure(self, block: bytes) -> tuple[Any, Bytes, Any, Flags]:
        """Return places of quotes, brackets, commas and newlines, what they are, and depth and string behind each."""
        kinds = np.frombuffer(block.translate(_KINDS), dtype=np.uint8)
        places = np.flatnonzero(kinds)
        kinds = kinds[places]
        if self._is_escaped or b"\\" in block:
            is_real = (kinds != _QUOTE) | ~self._escaped(block, places)
            places, kinds = places[is_real], kinds[is_real]
        is_inside = (np.cumsum(kinds == _QUOTE) + self._is_inside) % 2 == 1
        depths = self._depth + np.cumsum(np.where(is_inside, 0, _STEPS[kinds]))
        return places, kinds, depths, is_inside

    def _escaped(self, block: bytes, places: npt.NDArray[Any]) -> Flags:
        """Return which places follow an odd number of backslashes."""
        backslashes = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\\"))
        if self._is_escaped:
            backslashes = np.append(-1, backslashes)
        begins = np.diff(backslashes, prepend=-9) > 1
        starts = np.maximum.accumulate(np.where(begins, backslashes, -9))
        before = np.searchsorted(backslashes, places) - 1
        is_escaped: Flags = (backslashes[before] == places - 1) & ((places - starts[before]) % 2 == 1)
        return is_escaped

    def _advance(self, block: bytes, depths: npt.NDArray[Any], is_inside: Flags) -> None:
        num_backslashes = len(block) - len(block.rstrip(b"\\"))
        carried = self._is_escaped and num_backslashes == len(block)
        self._is_escaped = (num_backslashes + carried) % 2 == 1
        if len(depths):
            self._depth, self._is_inside = int(depths[-1]), bool(is_inside[-1])


def _blanks(content: Bytes, starts: npt.NDArray[Any], is_between: Flags, commas: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the places of blanks between elements, given where parts begin and which of them are between elements."""
    lengths = np.diff(np.minimum(starts, len(content)), append=len(content))[is_between]
    offsets = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    places = np.repeat(starts[is_between], lengths) + offsets
    blanks: npt.NDArray[Any] = places[_IS_SPACE[content[places]] & ~np.isin(places, commas, assume_unique=True)]
    return blanks
