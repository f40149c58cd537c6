"""Edits the text of a YAML document: a stretch of it is replaced, and the result must read as the edit says.

ruamel.yaml tells where keys and values lie. Its own round trip is not used: it lays out lists, long texts and
comments anew that no edit touches.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
)

from bridgepack.config.editing.edits import (
    REMOVE,
    CannotEditError,
    Edit,
    applied,
    is_same,
    leaf_edits,
    nested,
    newline_of,
    refuse,
)
from bridgepack.config.editing.yaml_values import block_lines, flow, text_scalar

_COLON = re.compile(r"\s*:")
_COMMENT = re.compile(r"(?:^|\s)#", re.MULTILINE)
_BLOCK_SCALARS = ("|", ">")
_IN_THE_WAY = "an anchor, a merge key (<<), a key that is no text or the layout is in the way"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Node:
    """A key or a value in the text.

    Attributes:
        start: offset of its first character, that of its anchor or tag included.
        end: offset after its last character; comments after it left out.
        text: of a scalar; None for all else.
        style: of a scalar: its quote, `|`, `>` or empty.
        is_block: whether it is a mapping or a list that is not in braces or brackets.
        is_mapping: whether it has entries.
        entries: (key, value) of a mapping.
    """

    start: int
    end: int
    text: str | None = None
    style: str = ""
    is_block: bool = False
    is_mapping: bool = False
    entries: tuple[tuple[_Node, _Node], ...] = ()


type _Splice = tuple[int, int, str]
"""Offsets of a stretch of text, and what comes in its place."""


def edited_yaml(text: str, edits: Sequence[Edit]) -> str:
    """Return the text of one YAML document after edits; lines that no edit touches stay as they are.

    Raises:
        CannotEditError: for an edit that its anchors, merge keys or layout forbid.
    """
    values = _sections(text)
    for edit in edits:
        for step in leaf_edits(values, edit):
            values = applied(values, step)
            text = _changed(text, step, values)
    return text


def _sections(text: str) -> dict[str, Any]:
    try:
        values = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, KeyError, RecursionError) as error:
        message = " ".join(str(error).split())
        raise CannotEditError(f"the file is not one YAML document: {message[:300]}. Edit it by hand.") from None
    if values is not None and not isinstance(values, dict):
        raise CannotEditError(f"the file holds a {type(values).__name__}, not sections. Edit it by hand.")
    return values or {}


def _changed(text: str, edit: Edit, wanted: dict[str, Any]) -> str:
    start, end, new = _splice(text, edit)
    result = text[:start] + new + text[end:]
    try:
        is_right = is_same(_sections(result), wanted)
    except CannotEditError:
        is_right = False
    if not is_right:
        _refuse(text, edit, start, _IN_THE_WAY)
    return result


def _refuse(text: str, edit: Edit, offset: int, reason: str) -> NoReturn:
    refuse(edit, f"line {text.count('\n', 0, offset) + 1}: {reason}")


def _root(text: str) -> _Node | None:
    """Return the mapping that a document is; None for an empty document."""
    parsed = YAML(typ="safe", pure=True).parse(text)
    events = [event for event in parsed if isinstance(event, NodeEvent | CollectionEndEvent)][::-1]
    root = _node(text, events) if events else None
    return root if root is not None and root.is_mapping else None


def _node(text: str, events: list[Any]) -> _Node:
    """Return the node that the last of the events, which are in reverse order, begins."""
    event = events.pop()
    start, end = event.start_mark.index, event.end_mark.index
    if isinstance(event, AliasEvent):
        return _Node(start=start, end=end)
    if isinstance(event, ScalarEvent):
        keeps_line_ends = event.style not in _BLOCK_SCALARS or "+" in text[start : _line_end(text, start)]
        end = end if keeps_line_ends else len(text[:end].rstrip())
        return _Node(start=start, end=end, text=event.value, style=event.style or "")
    assert isinstance(event, CollectionStartEvent)
    is_mapping = isinstance(event, MappingStartEvent)
    children: list[_Node] = []
    while not isinstance(events[-1], CollectionEndEvent):
        child = _node(text, events)
        if is_mapping and len(children) % 2 and child.start == child.end:  # a value that is left out
            colon = _after_colon(text, children[-1]) or children[-1].end
            child = _Node(start=colon, end=colon, text="")
        children.append(child)
    closing = events.pop()
    return _Node(
        start=start,
        end=closing.end_mark.index if event.flow_style or not children else children[-1].end,
        is_block=not event.flow_style,
        is_mapping=is_mapping,
        entries=tuple(zip(children[::2], children[1::2], strict=True)) if is_mapping else (),
    )


def _splice(text: str, edit: Edit) -> _Splice:
    """Return what one edit changes in a document."""
    root = _root(text)
    if root is None:
        return _first_entry(text, edit)
    node, section = root, None
    for depth, name in enumerate(edit.keys):
        value = edit.value if edit.value is REMOVE else nested(edit.keys[depth + 1 :], edit.value)
        index = next((index for index, (key, _) in enumerate(node.entries) if key.text == name), None)
        if index is None:
            if value is REMOVE:
                _refuse(text, edit, node.start, _IN_THE_WAY)
            return _added(text, edit, node, name, value, _step_of(text, root))
        entry = node.entries[index]
        if depth == len(edit.keys) - 1 and value is REMOVE:
            return _removed(text, edit, node, index, section)
        if depth == len(edit.keys) - 1 or not entry[1].is_mapping:
            if value is REMOVE:
                _refuse(text, edit, entry[1].start, _IN_THE_WAY)
            return _replaced(text, edit, entry, value)
        node, section = entry[1], entry[0]
    raise AssertionError("a path has at least one name")


def _first_entry(text: str, edit: Edit) -> _Splice:
    newline = newline_of(text)
    lines = block_lines(text_scalar(edit.keys[0]), nested(edit.keys[1:], edit.value), "  ")
    start = newline if text and not text.endswith("\n") else ""
    return len(text), len(text), start + newline.join(lines) + newline


def _added(text: str, edit: Edit, mapping: _Node, name: str, value: Any, step: str) -> _Splice:
    """Return a new entry at the end of a mapping."""
    last = mapping.entries[-1] if mapping.entries else None
    style = last[0].style if last else ""
    key, newline = text_scalar(name, style), newline_of(text)
    if last is None:
        start = text.index("{", mapping.start) + 1
        return start, start, f"{key}: {_in_style(value, style)}"
    end = last[1].end
    if not mapping.is_block:
        indent = _indentation(text, last[0].start)
        separator = ", " if indent is None else f",{newline}{indent}"
        return end, end, f"{separator}{key}: {_in_style(value, style)}"
    indent = _indentation_or_refuse(text, edit, mapping.entries[0][0])
    lines = newline.join(indent + line for line in block_lines(key, value, step))
    if text[end - 1] == "\n":
        return end, end, lines + newline
    end = _line_end(text, end)
    return end, end, newline + lines


def _replaced(text: str, edit: Edit, entry: tuple[_Node, _Node], value: Any) -> _Splice:
    """Return a value in the place of another."""
    key, old = entry
    new = _in_style(value, old.style)
    if old.start == old.end:
        has_colon = _after_colon(text, key) is not None
        return old.start, old.end, f" {new}" if has_colon else f": {new}"
    if old.is_block:
        colon = _colon_of_section(text, edit, key)
        start, end = _line_end(text, colon), _line_end(text, old.end)
        _check_no_comment(text, edit, start, end)
        return colon, end, f" {new}{text[colon:start]}"
    if old.style in _BLOCK_SCALARS:
        _check_no_comment(text, edit, old.start, _line_end(text, old.start))
        return old.start, old.start + len(text[old.start : old.end].rstrip()), new
    if old.text is None:
        _check_no_comment_in_flow(text, edit, old.start, old.end)
    return old.start, old.end, new


def _removed(text: str, edit: Edit, mapping: _Node, index: int, section: _Node | None) -> _Splice:
    """Return the deletion of an entry; `{}` stays of a section that had no other."""
    key, value = mapping.entries[index]
    if not mapping.is_block:
        return _removed_from_flow(text, edit, mapping, index)
    _indentation_or_refuse(text, edit, key)
    start = text.rfind("\n", 0, key.start) + 1
    end = value.end if text[value.end - 1] == "\n" else _next_line(text, value.end)
    if len(mapping.entries) > 1:
        return start, end, ""
    if section is None:
        return start, end, "{}" + newline_of(text)
    colon = _colon_of_section(text, edit, section)
    return colon, end, f" {{}}{text[colon:start]}"


def _removed_from_flow(text: str, edit: Edit, mapping: _Node, index: int) -> _Splice:
    entries = mapping.entries
    start, end = entries[index][0].start, entries[index][1].end
    if index + 1 < len(entries):
        end = entries[index + 1][0].start
    elif index:
        start = entries[index - 1][1].end
    else:
        start, end = text.index("{", mapping.start) + 1, mapping.end - 1
    _check_no_comment_in_flow(text, edit, start, end)
    return start, end, ""


def _in_style(value: Any, style: str) -> str:
    return text_scalar(value, style) if isinstance(value, str) and style in {"'", '"'} else flow(value)


def _check_no_comment(text: str, edit: Edit, start: int, end: int) -> None:
    if _COMMENT.search(text[start:end]):
        _refuse(text, edit, start, "comments stand inside its old value")


def _check_no_comment_in_flow(text: str, edit: Edit, start: int, end: int) -> None:
    if "\n" in text[start:end]:  # a comment ends with its line
        _check_no_comment(text, edit, start, end)


def _colon_of_section(text: str, edit: Edit, key: _Node) -> int:
    colon = _after_colon(text, key)
    rest = "&" if colon is None else text[colon : _line_end(text, colon)].strip()
    if colon is None or (rest and not rest.startswith("#")):
        _refuse(text, edit, key.start, _IN_THE_WAY)
    return colon


def _after_colon(text: str, key: _Node) -> int | None:
    match = _COLON.match(text, key.end)
    return match.end() if match else None


def _step_of(text: str, root: _Node) -> str:
    """Return the white space that the first nested block mapping is indented by; two spaces when there is none."""
    blocks = [value for _, value in root.entries if root.is_block and value.is_block and value.is_mapping]
    return (_indentation(text, blocks[0].entries[0][0].start) if blocks else None) or "  "


def _line_end(text: str, offset: int) -> int:
    """Return the offset where the line that `offset` is in ends, before its line ending."""
    newline = text.find("\n", offset)
    end = len(text) if newline < 0 else newline
    return end - 1 if newline >= 0 and end > offset and text[end - 1] == "\r" else end


def _next_line(text: str, offset: int) -> int:
    newline = text.find("\n", offset)
    return len(text) if newline < 0 else newline + 1


def _indentation(text: str, offset: int) -> str | None:
    """Return the white space before `offset` on its line; None when something else stands before it."""
    before = text[text.rfind("\n", 0, offset) + 1 : offset]
    return before if not before.strip(" \t") else None


def _indentation_or_refuse(text: str, edit: Edit, key: _Node) -> str:
    indent = _indentation(text, key.start)
    if indent is None:
        _refuse(text, edit, key.start, "its section is not laid out as one key per line")
    return indent
