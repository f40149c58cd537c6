"""Turns a streamed JSON array into one line per element: `[{"a": 1}, 2]` -> `{"a": 1}`, then `2`.

Looks only at quotes, brackets and commas, block by block, so an element of any size takes no more memory than a
block. Whether an element is valid JSON shows when its line is parsed.
"""

from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from bridgepack.errors import DataError

_BLOCK_BYTES = 1 << 20
_SPACE = b" \t\r\n"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
#: Kinds of bytes: quote, opening and closing brackets, comma and newline; 0 for all others.
_KINDS = bytes(b'"{[}],\n'.find(byte) + 1 for byte in range(256))
_QUOTE, _COMMA, _NEWLINE = 1, 6, 7
#: Change in nesting depth per kind.
_STEPS = np.array([0, 0, 1, 1, -1, -1, 0, 0])


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
        self._label = label
        self._depth = 1
        self._is_inside = self._is_escaped = False
        self._num_commas = 0
        self._last = b""

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
        found = b"\n".join([line.strip(b" \t\r") for line in lines])[len(before) :].removesuffix(after)
        self._last = found[-1:] or self._last
        if len(ends):
            self._depth = 0
            self._refuse_rest(block[size + 1 :], closing=block[size : size + 1])
        return found

    def finish(self) -> None:
        """Refuse an incomplete array."""
        if self._depth:
            raise self._broken("the array ends early")
        if self._last == b"\n":
            raise self._broken("an element is missing after the comma")

    @property
    def _guard(self) -> bytes:
        """A byte that protects the blanks beside it inside an element; empty between elements."""
        return b"" if self._depth == 1 and not self._is_inside else b"|"

    def _refuse_rest(self, rest: bytes, closing: bytes = b"]") -> None:
        if closing != b"]":
            raise self._broken(f"it is followed by {closing.decode()}")
        if rest.strip(_SPACE):
            raise self._broken("more text follows the end of the array")

    def _broken(self, reason: str) -> DataError:
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
