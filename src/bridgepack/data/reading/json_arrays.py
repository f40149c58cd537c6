"""Cuts a JSON array into its elements' texts as it streams by, so that each is parsed like a JSON Lines row."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from bridgepack.data.reading.json_structure import ValueEnd

_BLOCK_BYTES = 1 << 20
_SPACE = " \t\r\n"
#: More characters than a block's end can cut off a number or literal; within it `-0` may yet become `-0.25`.
_LONGEST_CUT = 16
#: Finds where elements end; what it makes of them is thrown away, so numbers of any length may stay text.
_SCANNER = json.JSONDecoder(parse_int=str, parse_float=str)


@dataclass(frozen=True, kw_only=True, slots=True)
class OversizedElement:
    """An element that is larger than allowed and was passed over without being held.

    Attributes:
        num_bytes: its size.
    """

    num_bytes: int


def iter_element_texts(stream: IO[bytes], max_element_bytes: int) -> Iterator[bytes | OversizedElement]:
    """Yield the UTF-8 text of each element: `[{"a": 1}, 2]` -> `{"a": 1}`, then `2`.

    Args:
        stream: the array.
        max_element_bytes: of a larger element only the size is given.

    Raises:
        ValueError: saying what is wrong; it is no JSON array, or not UTF-8.
    """
    text = _Text(stream, max_element_bytes)
    text.expect("[")
    if text.next_character() == "]":
        text.expect("]")
    else:
        yield text.element()
        while text.expect(",]") == ",":
            yield text.element()
    if text.next_character():
        raise ValueError(f"there is more after the array's end{text.where()}")


class _Text:
    """A stream's text, held in memory from the element at hand to the end of the last block read."""

    def __init__(self, stream: IO[bytes], max_element_bytes: int) -> None:
        self._stream = stream
        self._max_element_bytes = max_element_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text = ""
        self._position = 0
        self._is_at_end = False
        self._num_elements = 0

    def where(self) -> str:
        return f", after element {self._num_elements}"

    def next_character(self) -> str:
        """Return the next character that is no space, without taking it; "" at the end."""
        while True:
            while self._position < len(self._text):
                if self._text[self._position] not in _SPACE:
                    return self._text[self._position]
                self._position += 1
            if not self._read_more():
                return ""

    def expect(self, allowed: str) -> str:
        """Take and return the next character, one of `allowed`."""
        character = self.next_character()
        if not character:
            raise ValueError(f"it ends early{self.where()}")
        if character not in allowed:
            raise ValueError(f"{' or '.join(allowed)} is missing{self.where()}; found {character!r}")
        self._position += 1
        return character

    def element(self) -> bytes | OversizedElement:
        """Take and return the next element."""
        self.next_character()
        while True:
            try:
                _, end = _SCANNER.raw_decode(self._text, self._position)
            except RecursionError:
                raise ValueError(f"element {self._num_elements + 1} is nested too deeply") from None
            except json.JSONDecodeError as error:
                is_cut = error.msg.startswith("Unterminated string") or len(self._text) - error.pos < _LONGEST_CUT
                if is_cut and len(self._text) - self._position > _BLOCK_BYTES:
                    return self._long_element()
                if not (is_cut and self._read_more()):
                    raise ValueError(f"element {self._num_elements + 1}: {error.msg}") from None
                continue
            if len(self._text) - end >= _LONGEST_CUT or not self._read_more():
                return self._taken(end)

    def _taken(self, end: int) -> bytes | OversizedElement:
        found = self._text[self._position : end].encode()
        self._position = end
        self._num_elements += 1
        return found if len(found) <= self._max_element_bytes else OversizedElement(num_bytes=len(found))

    def _long_element(self) -> bytes | OversizedElement:
        """Take an element of more than a block; of one that is too large, hold a block at a time."""
        parts: list[bytes] = []
        num_bytes = num_spaces = 0
        value_end = ValueEnd()
        while True:
            block = self._text[self._position :].encode()
            end = value_end.find(block)
            part = block[:end]
            self._position += len(part.decode())
            num_bytes += len(part)
            rest = len(part) - len(part.rstrip(_SPACE.encode()))
            num_spaces = num_spaces + rest if rest == len(part) else rest
            if num_bytes - num_spaces <= self._max_element_bytes:
                parts.append(part)
            else:
                parts.clear()
            if end is not None:
                break
            if not self._read_more():
                raise ValueError(f"it ends early{self.where()}")
        self._num_elements += 1
        num_bytes -= num_spaces
        if num_bytes > self._max_element_bytes:
            return OversizedElement(num_bytes=num_bytes)
        return b"".join(parts).rstrip(_SPACE.encode())

    def _read_more(self) -> bool:
        """Read at least as much as is held, so that long elements are scanned a few times only; False at the end."""
        if self._is_at_end:
            return False
        held = self._text[self._position :]
        block = self._stream.read(max(_BLOCK_BYTES, len(held)))
        self._is_at_end = not block
        self._text = held + self._decoder.decode(block, final=not block)
        self._position = 0
        return True
