"""Finds where a JSON value ends by its quotes and brackets alone, block by block, for values that nobody will hold."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_QUOTE, _OPEN, _CLOSE, _COMMA = 1, 2, 3, 4
_BACKSLASH = 0x5C
_KINDS = np.zeros(256, dtype=np.uint8)
_KINDS[[ord(character) for character in '"{[}],']] = [_QUOTE, _OPEN, _OPEN, _CLOSE, _CLOSE, _COMMA]

Bytes = npt.NDArray[np.uint8]


class ValueEnd:
    """Looks for the end of one value in block after block."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_inside = False
        self._is_escaped = False

    def find(self, block: bytes) -> int | None:
        """Return where in this block the value ends, or None: `1], 2` within a list -> 2."""
        content = np.frombuffer(block, dtype=np.uint8)
        kinds = _KINDS[content]
        places = np.flatnonzero(kinds)
        places = places[~((kinds[places] == _QUOTE) & self._escaped(content, places))]
        kinds = kinds[places]
        is_quote = kinds == _QUOTE
        is_inside = (np.cumsum(is_quote) + self._is_inside) % 2 == 1
        is_outside = ~is_inside & ~is_quote
        steps = np.where(is_outside & (kinds == _OPEN), 1, 0) - np.where(is_outside & (kinds == _CLOSE), 1, 0)
        depths = self._depth + np.cumsum(steps)
        ends_with = (depths == 0) & ((is_outside & (kinds == _CLOSE)) | (is_quote & ~is_inside))
        ends_before = is_outside & ((depths < 0) | ((depths == 0) & (kinds == _COMMA)))
        ends = np.flatnonzero(ends_with | ends_before)
        if len(ends):
            return int(places[ends[0]]) + int(ends_with[ends[0]])
        self._depth = int(depths[-1]) if len(depths) else self._depth
        self._is_inside = bool(is_inside[-1]) if len(is_inside) else self._is_inside
        self._is_escaped = self._ends_escaped(block)
        return None

    def _escaped(self, content: Bytes, places: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
        """Return which places follow an odd number of backslashes."""
        if not (self._is_escaped or (content == _BACKSLASH).any()):
            return np.zeros(len(places), dtype=np.bool_)
        numbers = np.arange(len(content))
        start = -2 if self._is_escaped else -1
        last_other = np.maximum.accumulate(np.where(content != _BACKSLASH, numbers, start))
        before = np.where(places > 0, last_other[np.maximum(places - 1, 0)], start)
        is_escaped: npt.NDArray[np.bool_] = (places - 1 - before) % 2 == 1
        return is_escaped

    def _ends_escaped(self, block: bytes) -> bool:
        num_backslashes = len(block) - len(block.rstrip(b"\\"))
        carried = self._is_escaped and num_backslashes == len(block)
        return (num_backslashes + carried) % 2 == 1
