"""Edits the text of a YAML document: only what an edit touches changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from bridgepack.config.editing.edits import (
    REMOVE,
    CannotEditError,
    Edit,
    applied,
    is_same,
    leaf_edits,
    refuse,
    value_at,
)
from bridgepack.config.editing.splicing import (
    BYTE_ORDER_MARK,
    Splice,
    indentation,
    line_end,
    line_start,
    newline_of,
    next_line,
    spliced,
)
from bridgepack.config.editing.yaml_nodes import (
    Entry,
    after_colon,
    compose,
    entry_end,
    find_entry,
    flow_has_comment,
    has_comment,
    has_merge,
    is_empty,
    nested_step,
    node_end,
    parse,
    shared_nodes,
)
from bridgepack.config.editing.yaml_values import block_lines, flow, text_scalar


def edited_yaml(text: str, edits: Sequence[Edit]) -> str:
    """Return the text of one YAML document after edits; lines that no edit touches stay as they are.

    Raises:
        CannotEditError: for an edit that its anchors, merge keys or layout forbid.
    """
    body = text.removeprefix(BYTE_ORDER_MARK)
    values = _sections(parse(body))
    expected = values
    for edit in edits:
        expected = applied(expected, edit)
        for step in leaf_edits(values, edit):
            body = spliced(body, _splices(body, values, step))
            values = applied(values, step)
    found = parse(body)
    assert is_same({} if found is None else found, expected), f"edited YAML reads {found!r}, not {expected!r}"
    return text[: len(text) - len(text.removeprefix(BYTE_ORDER_MARK))] + body


def _sections(values: Any) -> dict[str, Any]:
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise CannotEditError(f"the file holds a {type(values).__name__}, not sections. Edit it by hand.")
    return values


def _splices(text: str, values: Mapping[str, Any], edit: Edit) -> list[Splice]:
    """Return what one edit changes in a document."""
    root = compose(text)
    if root is None:
        return [_appended(text, edit)]
    shared = shared_nodes(root)
    node: Node = root
    trail: list[Entry] = []
    for depth, name in enumerate(edit.keys):
        assert isinstance(node, MappingNode)
        index = find_entry(node, name, edit)
        if index is None:
            return _added(text, values, edit, node, depth, nested_step(text, root))
        entry: Entry = node.value[index]
        if id(entry[1]) in shared:
            refuse(edit, f"{'.'.join(edit.keys[: depth + 1])} has an anchor that is used in another place too")
        if depth == len(edit.keys) - 1:
            if edit.value is REMOVE:
                return _removed(text, edit, node, index, trail[-1][0] if trail else None)
            return _replaced(text, edit, entry, edit.value, is_in_flow=bool(node.flow_style))
        if not isinstance(entry[1], MappingNode):
            value = _nested(edit.keys[depth + 1 :], edit.value)
            return _replaced(text, edit, entry, value, is_in_flow=bool(node.flow_style))
        trail.append(entry)
        node = entry[1]
    raise AssertionError("a path has at least one name")


def _nested(names: Sequence[str], value: Any) -> Any:
    for name in reversed(names):
        value = {name: value}
    return value


def _appended(text: str, edit: Edit) -> Splice:
    """Return the first entry of an empty document, at its end."""
    newline = newline_of(text)
    if any(line.rstrip() == "..." for line in text.splitlines()):
        refuse(edit, "the document is empty and ends with '...'")
    lines = block_lines(text_scalar(edit.keys[0]), _nested(edit.keys[1:], edit.value), "  ")
    start = newline if text and not text.endswith("\n") else ""
    return Splice(start=len(text), end=len(text), text=start + newline.join(lines) + newline)


def _added(
    text: str, values: Mapping[str, Any], edit: Edit, mapping: MappingNode, depth: int, step: str
) -> list[Splice]:
    """Return a new entry at the end of a mapping."""
    missing = object()
    is_merged = value_at(values, edit.keys[: depth + 1], missing) is not missing
    if is_merged and (edit.value is REMOVE or depth < len(edit.keys) - 1):
        refuse(edit, f"{'.'.join(edit.keys[: depth + 1])} comes from a merge key (<<)")
    value = _nested(edit.keys[depth + 1 :], edit.value)
    style = mapping.value[-1][0].style if mapping.value else None
    key = text_scalar(edit.keys[depth], style if style in {"'", '"'} else None)
    if mapping.flow_style:
        return [_added_in_flow(text, mapping, f"{key}: {_in_style(value, style)}")]
    indent = indentation(text, mapping.value[0][0].start_mark.index)
    if indent is None:
        refuse(edit, "its section is not laid out as one key per line")
    newline = newline_of(text)
    lines = newline.join(indent + line for line in block_lines(key, value, step))
    end = entry_end(text, mapping.value[-1])
    if text[end - 1] == "\n":
        return [Splice(start=end, end=end, text=lines + newline)]
    end = line_end(text, end)
    return [Splice(start=end, end=end, text=newline + lines)]


def _in_style(value: Any, style: str | None) -> str:
    return text_scalar(value, style) if isinstance(value, str) and style in {"'", '"'} else flow(value)


def _added_in_flow(text: str, mapping: MappingNode, entry: str) -> Splice:
    if not mapping.value:
        start = text.index("{", mapping.start_mark.index) + 1
        return Splice(start=start, end=start, text=entry)
    end = entry_end(text, mapping.value[-1])
    indent = indentation(text, mapping.value[-1][0].start_mark.index)
    separator = ", " if indent is None else f",{newline_of(text)}{indent}"
    return Splice(start=end, end=end, text=separator + entry)


def _replaced(text: str, edit: Edit, entry: Entry, value: Any, *, is_in_flow: bool) -> list[Splice]:
    """Return a value in the place of another."""
    key, old = entry
    style = old.style if isinstance(old, ScalarNode) else None
    new = _in_style(value, style)
    colon = after_colon(text, key)
    if is_empty(old):
        if colon is None and not is_in_flow:
            refuse(edit, "its key has no colon there")
        start = key.end_mark.index if colon is None else colon
        return [Splice(start=start, end=start, text=f"{':' if colon is None else ''} {new}")]
    if isinstance(old, MappingNode | SequenceNode) and not old.flow_style:
        return _replaced_block(text, edit, entry, new)
    start, end = old.start_mark.index, node_end(text, old)
    has_lost_comment = not isinstance(old, ScalarNode) and flow_has_comment(text[start:end])
    if style in {"|", ">"}:
        end = start + len(text[start:end].rstrip())
        has_lost_comment = has_comment(text[start : line_end(text, start)])
    if has_lost_comment:
        refuse(edit, "comments stand inside its old value")
    return [Splice(start=start, end=end, text=new)]


def _replaced_block(text: str, edit: Edit, entry: Entry, new: str) -> list[Splice]:
    """Return a value on the line of its key in the place of the lines below."""
    colon = _colon_of_section(text, edit, entry[0])
    start, end = line_end(text, colon), line_end(text, entry_end(text, entry))
    if has_comment(text[start:end]):
        refuse(edit, "comments stand inside its old value")
    return [Splice(start=colon, end=colon, text=f" {new}"), Splice(start=start, end=end, text="")]


def _colon_of_section(text: str, edit: Edit, key: Node) -> int:
    colon = after_colon(text, key)
    rest = "&" if colon is None else text[colon : line_end(text, colon)].strip()
    if colon is None or (rest and not rest.startswith("#")):
        refuse(edit, "its section has an anchor, a tag or an unusual layout")
    return colon


def _removed(text: str, edit: Edit, mapping: MappingNode, index: int, parent: Node | None) -> list[Splice]:
    """Return the deletion of an entry; `{}` stays of a section that had no other."""
    if has_merge(mapping):
        refuse(edit, "its section has a merge key (<<), which may give it again")
    if mapping.flow_style:
        return [_removed_from_flow(text, edit, mapping, index)]
    key = mapping.value[index][0]
    if indentation(text, key.start_mark.index) is None:
        refuse(edit, "its section is not laid out as one key per line")
    end = entry_end(text, mapping.value[index])
    start, end = line_start(text, key.start_mark.index), end if text[end - 1] == "\n" else next_line(text, end)
    if len(mapping.value) > 1:
        return [Splice(start=start, end=end, text="")]
    if parent is None:
        return [Splice(start=start, end=end, text="{}" + newline_of(text))]
    colon = _colon_of_section(text, edit, parent)
    return [Splice(start=colon, end=colon, text=" {}"), Splice(start=start, end=end, text="")]


def _removed_from_flow(text: str, edit: Edit, mapping: MappingNode, index: int) -> Splice:
    entries = mapping.value
    start, end = entries[index][0].start_mark.index, entry_end(text, entries[index])
    if index + 1 < len(entries):
        end = entries[index + 1][0].start_mark.index
    elif index:
        start = entry_end(text, entries[index - 1])
    else:
        start, end = text.index("{", mapping.start_mark.index) + 1, mapping.end_mark.index - 1
    if flow_has_comment(text[start:end]):
        refuse(edit, "comments stand beside it")
    return Splice(start=start, end=end, text="")
