"""Edits the text of a YAML document: a stretch of it is replaced, and the result must read as the edit says.

ruamel.yaml tells where keys and values lie. Its own round trip is not used: it drops the comments after an entry that
is removed, and indents lists anew that no edit touches.
"""

import re
from collections.abc import Sequence
from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode

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
_ALIAS = re.compile(r"[\s:,-]*(\*[^\s,\]}]+)")
_COMMENT = re.compile(r"(?:^|\s)#", re.MULTILINE)
_IN_THE_WAY = "an anchor, a merge key (<<), a key that is no text or the layout is in the way"

type _Entry = tuple[Node, Node]
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


def _splice(text: str, edit: Edit) -> _Splice:
    """Return what one edit changes in a document."""
    root = YAML(typ="safe", pure=True).compose(text)
    if not isinstance(root, MappingNode):
        lines = block_lines(text_scalar(edit.keys[0]), nested(edit.keys[1:], edit.value), "  ")
        start, newline = len(text), newline_of(text)
        return start, start, (newline if text and not text.endswith("\n") else "") + newline.join([*lines, ""])
    node, section = root, None
    for depth, name in enumerate(edit.keys):
        rest = edit.keys[depth + 1 :]
        index = next((index for index, (key, _) in enumerate(node.value) if key.value == name), None)
        if index is None and edit.value is not REMOVE:
            return _added(text, edit, node, name, nested(rest, edit.value), _step_of(text, root))
        if index is None:
            _refuse(text, edit, node.start_mark.index, _IN_THE_WAY)
        key, value = node.value[index]
        if not rest and edit.value is REMOVE:
            return _removed(text, edit, node, index, section)
        if not rest or not isinstance(value, MappingNode) or _is_alias(key, value):
            if edit.value is REMOVE:
                _refuse(text, edit, key.end_mark.index, _IN_THE_WAY)
            return _replaced(text, edit, (key, value), nested(rest, edit.value))
        node, section = value, key
    raise AssertionError("a path has at least one name")


def _added(text: str, edit: Edit, mapping: MappingNode, name: str, value: Any, step: str) -> _Splice:
    """Return a new entry at the end of a mapping."""
    style = mapping.value[-1][0].style or "" if mapping.value else ""
    key, newline = text_scalar(name, style), newline_of(text)
    if not mapping.value:
        start = text.index("{", mapping.start_mark.index) + 1
        return start, start, f"{key}: {_in_style(value, style)}"
    end = _span(text, mapping.value[-1])[1]
    if mapping.flow_style:
        indent = _indentation(text, mapping.value[-1][0].start_mark.index)
        separator = ", " if indent is None else f",{newline}{indent}"
        return end, end, f"{separator}{key}: {_in_style(value, style)}"
    indent = _indentation_or_refuse(text, edit, mapping.value[0][0])
    lines = newline.join(indent + line for line in block_lines(key, value, step))
    if text[end - 1] == "\n":
        return end, end, lines + newline
    end = _line_end(text, end)
    return end, end, newline + lines


def _replaced(text: str, edit: Edit, entry: _Entry, value: Any) -> _Splice:
    """Return a value in the place of another."""
    key, old = entry
    start, end = _span(text, entry)
    style = old.style or "" if isinstance(old, ScalarNode) and not _is_alias(key, old) else ""
    new = _in_style(value, style)
    if start == end:
        return start, end, f" {new}" if _after_colon(text, key) else f": {new}"
    if isinstance(old, CollectionNode) and not old.flow_style and not _is_alias(key, old):
        colon = _colon_of_section(text, edit, key)
        start, end = _line_end(text, colon), _line_end(text, end)
        _check_no_comment(text, edit, start, end)
        return colon, end, f" {new}{text[colon:start]}"
    if style in {"|", ">"}:
        _check_no_comment(text, edit, start, _line_end(text, start))
        return start, start + len(text[start:end].rstrip()), new
    if isinstance(old, CollectionNode) and "\n" in text[start:end]:  # a comment ends with its line
        _check_no_comment(text, edit, start, end)
    return start, end, new


def _removed(text: str, edit: Edit, mapping: MappingNode, index: int, section: Node | None) -> _Splice:
    """Return the deletion of an entry; `{}` stays of a section that had no other."""
    key, entries = mapping.value[index][0], mapping.value
    start, end = key.start_mark.index, _span(text, entries[index])[1]
    if mapping.flow_style:
        if index + 1 < len(entries):
            end = entries[index + 1][0].start_mark.index
        elif index:
            start = _span(text, entries[index - 1])[1]
        else:
            start, end = text.index("{", mapping.start_mark.index) + 1, mapping.end_mark.index - 1
        if "\n" in text[start:end]:
            _check_no_comment(text, edit, start, end)
        return start, end, ""
    _indentation_or_refuse(text, edit, key)
    start = text.rfind("\n", 0, start) + 1
    if text[end - 1] != "\n":
        end = text.find("\n", end) + 1 or len(text)
    if len(entries) > 1:
        return start, end, ""
    if section is None:
        return start, end, "{}" + newline_of(text)
    colon = _colon_of_section(text, edit, section)
    return colon, end, f" {{}}{text[colon:start]}"


def _is_alias(key: Node, value: Node) -> bool:
    """Say whether a value is an alias: its node is where the anchor is."""
    return bool(value.start_mark.index < key.end_mark.index)


def _span(text: str, entry: _Entry) -> tuple[int, int]:
    """Return where the value of an entry lies, its anchor or tag included, and comments after it left out."""
    key, value = entry
    start: int = value.start_mark.index
    if start == value.end_mark.index:  # a value that is left out
        start = _after_colon(text, key) or key.end_mark.index
        return start, start
    if _is_alias(key, value):
        match = _ALIAS.match(text, key.end_mark.index)
        assert match is not None
        return match.span(1)
    return start, _end(text, value, start)


def _end(text: str, node: Node, after: int) -> int:
    """Return the offset after a node that lies behind `after`."""
    if node.start_mark.index < after:
        match = _ALIAS.match(text, after)
        return match.end() if match else after
    start: int = node.start_mark.index
    end: int = node.end_mark.index
    if isinstance(node, ScalarNode):
        is_trimmed = node.style in {"|", ">"} and "+" not in text[start : _line_end(text, start)]
        return len(text[:end].rstrip()) if is_trimmed else end
    if not isinstance(node, CollectionNode) or node.flow_style or not node.value:
        return end
    if isinstance(node, MappingNode):
        return _span(text, node.value[-1])[1]
    for item in node.value:
        start = _end(text, item, start)
    return start


def _in_style(value: Any, style: str) -> str:
    return text_scalar(value, style) if isinstance(value, str) and style in {"'", '"'} else flow(value)


def _check_no_comment(text: str, edit: Edit, start: int, end: int) -> None:
    if _COMMENT.search(text[start:end]):
        _refuse(text, edit, start, "comments stand inside its old value")


def _colon_of_section(text: str, edit: Edit, key: Node) -> int:
    colon = _after_colon(text, key)
    rest = "&" if colon is None else text[colon : _line_end(text, colon)].strip()
    if colon is None or (rest and not rest.startswith("#")):
        _refuse(text, edit, key.start_mark.index, _IN_THE_WAY)
    return colon


def _after_colon(text: str, key: Node) -> int | None:
    match = _COLON.match(text, key.end_mark.index)
    return match.end() if match else None


def _step_of(text: str, root: MappingNode) -> str:
    """Return the white space that the first nested block mapping is indented by; two spaces when there is none."""
    for key, value in root.value:
        if isinstance(value, MappingNode) and not value.flow_style and not _is_alias(key, value):
            return _indentation(text, value.value[0][0].start_mark.index) or "  "
    return "  "


def _line_end(text: str, offset: int) -> int:
    """Return the offset where the line that `offset` is in ends, before its line ending."""
    match = re.compile(r"[^\r\n]*").match(text, offset)
    return match.end() if match else offset


def _indentation(text: str, offset: int) -> str | None:
    """Return the white space before `offset` on its line; None when something else stands before it."""
    before = text[text.rfind("\n", 0, offset) + 1 : offset]
    return before if not before.strip(" \t") else None


def _indentation_or_refuse(text: str, edit: Edit, key: Node) -> str:
    indent = _indentation(text, key.start_mark.index)
    if indent is None:
        _refuse(text, edit, key.start_mark.index, "its section is not laid out as one key per line")
    return indent
