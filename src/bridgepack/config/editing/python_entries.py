"""Entries of a call with keywords or of a dict display: found, added and removed in the text."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from bridgepack.config.editing.edits import Edit, refuse
from bridgepack.config.editing.python_source import Source, called_name
from bridgepack.config.editing.splicing import Splice, indentation, line_end, line_start, newline_of, next_line

_OPENING = re.compile(r"[\s)]*\(")


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One entry of a call or dict.

    Attributes:
        name: keyword or key; None for `**values` and for a key that is not spelled out.
        first: where the entry starts.
        last: where it ends, but for brackets around a dict's value.
        value: what it holds.
    """

    name: str | None
    first: ast.expr | ast.keyword
    last: ast.expr | ast.keyword
    value: ast.expr


def entries_of(node: ast.Call | ast.Dict) -> list[Entry]:
    """Return the entries of a call or dict in order."""
    if isinstance(node, ast.Call):
        return [Entry(name=one.arg, first=one, last=one, value=one.value) for one in node.keywords]
    return [
        Entry(name=_constant_text(key), first=key or value, last=value, value=value)
        for key, value in zip(node.keys, node.values, strict=True)
    ]


def _constant_text(key: ast.expr | None) -> str | None:
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def find_index(entries: list[Entry], name: str) -> int | None:
    """Return the index of the entry that decides a name; None when none does for certain."""
    for index in reversed(range(len(entries))):
        if entries[index].name in {name, None}:
            return index if entries[index].name == name else None
    return None


def may_hold_more(entries: list[Entry]) -> bool:
    """Say whether some entries are not spelled out: `**values`."""
    return any(entry.name is None for entry in entries)


def section_of(node: ast.expr) -> ast.Call | ast.Dict | None:
    """Return the call or dict whose entries are a section's fields; None when they are not spelled out there."""
    if isinstance(node, ast.Dict):
        return node
    if not isinstance(node, ast.Call):
        return None
    name = called_name(node) or ""
    if name in {"from_mapping", "model_validate"}:
        given = node.args[0] if node.args else node.keywords[0].value if node.keywords else None
        return given if isinstance(given, ast.Dict) else None
    is_constructor = name[:1].isupper() or name == "dict"
    return node if is_constructor and not node.args else None


def added_entry(source: Source, node: ast.Call | ast.Dict, entry: str) -> list[Splice]:
    """Return an entry put after the last one, on its own line where that one has its own."""
    text, close = source.text, source.end(node) - 1
    entries = entries_of(node)
    if not entries:
        start = source.start(node) + 1 if isinstance(node, ast.Dict) else _opening_end(source, node)
        return [Splice(start=start, end=start, text=entry)]
    end, comma = _tail(text, source.end(entries[-1].last), close)
    indent = indentation(text, _first_offset(source, entries[-1]))
    if indent is None:
        return [Splice(start=end, end=end, text=f", {entry}")]
    line = newline_of(text) + indent + entry
    is_closed_there = close < line_end(text, comma or end)
    if comma is not None:
        at = comma if is_closed_there else line_end(text, comma)
        return [Splice(start=at, end=at, text=line if is_closed_there else f"{line},")]
    at = end if is_closed_there else line_end(text, end)
    return [Splice(start=end, end=end, text=","), Splice(start=at, end=at, text=line)]


def removed_entry(source: Source, node: ast.Call | ast.Dict, index: int, edit: Edit) -> Splice:
    """Return the deletion of an entry, with its line where it has its own.

    Raises:
        CannotEditError: when comments stand between it and its neighbour.
    """
    text, entries = source.text, entries_of(node)
    close = source.end(node) - 1
    start = _first_offset(source, entries[index])
    is_last = index + 1 == len(entries)
    limit = close if is_last else _first_offset(source, entries[index + 1])
    end, comma = _tail(text, source.end(entries[index].last), limit)
    after = comma or end
    if indentation(text, start) is not None and limit >= line_end(text, after):
        return Splice(start=line_start(text, start), end=next_line(text, after), text="")
    if not is_last:
        end = limit
    elif index:
        start = _tail(text, source.end(entries[index - 1].last), start)[0]
    else:
        end = after
    if "\n" in text[start:end] and "#" in text[start:end]:
        refuse(edit, "comments stand beside it")
    return Splice(start=start, end=end, text="")


def _first_offset(source: Source, entry: Entry) -> int:
    start = source.start(entry.first)
    if entry.name is None and entry.first is entry.value:
        return source.text.rindex("**", 0, start)
    return start


def _opening_end(source: Source, node: ast.Call) -> int:
    match = _OPENING.match(source.text, source.end(node.func))
    assert match is not None
    return match.end()


def _tail(text: str, start: int, limit: int) -> tuple[int, int | None]:
    """Return where an entry ends with its closing brackets, and the offset after the comma that follows, if any."""
    end, position = start, start
    while position < limit:
        if text[position] == "#":
            position = line_end(text, position)
        elif text[position] == ")":
            end = position + 1
        elif text[position] == ",":
            return end, position + 1
        position += 1
    return end, None
