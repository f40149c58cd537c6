"""Replaces stretches of a text and leaves every other character as it is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True, kw_only=True, slots=True)
class Splice:
    """A stretch of text to replace.

    Attributes:
        start: offset of its first character.
        end: offset after its last character; `start` for an insertion.
        text: what comes in its place.
    """

    start: int
    end: int
    text: str


def spliced(text: str, splices: Iterable[Splice]) -> str:
    """Return a text with stretches replaced; they do not overlap, and at one offset come in the order given."""
    parts: list[str] = []
    position = 0
    for splice in sorted(splices, key=lambda splice: splice.start):
        assert splice.start >= position
        parts += [text[position : splice.start], splice.text]
        position = splice.end
    return "".join([*parts, text[position:]])


def newline_of(text: str) -> str:
    """Return the line ending of a text: that of its first line."""
    return "\r\n" if re.match(r"[^\n]*\r\n", text) else "\n"


def line_start(text: str, offset: int) -> int:
    """Return the offset of the first character of the line that `offset` is in."""
    return text.rfind("\n", 0, offset) + 1


def line_end(text: str, offset: int) -> int:
    """Return the offset where the line that `offset` is in ends, before its line ending."""
    newline = text.find("\n", offset)
    end = len(text) if newline < 0 else newline
    return end - 1 if newline >= 0 and end > offset and text[end - 1] == "\r" else end


def next_line(text: str, offset: int) -> int:
    """Return the offset of the first character of the next line, or the length of the text."""
    newline = text.find("\n", offset)
    return len(text) if newline < 0 else newline + 1


def indentation(text: str, offset: int) -> str | None:
    """Return the white space before `offset` on its line; None when something else stands before it."""
    before = text[line_start(text, offset) : offset]
    return before if not before.strip(" \t") else None
