"""Edits the text of a YAML document: replaces the text of one value, or adds lines at the end of a section.

ruamel.yaml gives the positions of keys and values. Its round trip is not used because it re-indents untouched lists.
"""

import re
from collections.abc import Sequence
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node

from bridgepack.config.editing.edits import CannotEditError, Edit, check_no_comment, edited, nested, refuse
from bridgepack.config.editing.yaml_values import block_lines, flow, text_scalar

_COLON = re.compile(r"\s*:")
#: Blank lines and comments at the end of a section, which ruamel counts as part of it.
_TRAILING = re.compile(r"(?:\n[ \t]*(?:#[^\n]*)?)*\Z")


def edited_yaml(text: str, edits: Sequence[Edit]) -> str:
    """Return the text of one YAML document after edits; lines that no edit touches stay as they are.

    Raises:
        CannotEditError: anchors, merge keys or the layout prevent an edit.
    """
    return edited(text, edits, read=_sections, change=_changed)


def _sections(text: str) -> dict[str, Any]:
    try:
        values = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, KeyError, RecursionError) as error:
        message = " ".join(str(error).split())
        raise CannotEditError(f"the file is not one YAML document: {message[:300]}. Edit it by hand.") from None
    if values is not None and not isinstance(values, dict):
        raise CannotEditError(f"the file holds a {type(values).__name__}, not sections. Edit it by hand.")
    return values or {}


def _changed(text: str, edit: Edit) -> str:
    root = YAML(typ="safe", pure=True).compose(text)
    if not isinstance(root, MappingNode):  # only comments
        lines = block_lines(flow(edit.keys[0]), nested(edit.keys[1:], edit.value), "  ")
        return text + ("\n" if text and not text.endswith("\n") else "") + "".join(f"{line}\n" for line in lines)
    node, keys = root, list(edit.keys)
    while True:
        name, value = keys[0], nested(keys[1:], edit.value)
        entry = next((entry for entry in node.value if entry[0].value == name), None)
        if entry is None:
            return _with_entry(text, node, name, value, _step_of(root))
        key, old = entry
        if len(keys) == 1 or not isinstance(old, MappingNode):
            return _with_value(text, edit, key, old, value)
        node = old
        del keys[0]


def _with_entry(text: str, mapping: MappingNode, name: str, value: Any, step: str) -> str:
    """Return a text with a new entry at the end of a mapping."""
    start, end = mapping.start_mark.index, mapping.end_mark.index
    if not mapping.value:
        return text[:start] + flow({name: value}) + text[end:]
    if mapping.flow_style:
        before = text[: end - 1].rstrip()
        separator = " " if before.endswith(",") else ", "
        return f"{before}{separator}{flow(name)}: {flow(value)}{text[len(before) :]}"
    indent = "\n" + " " * mapping.value[0][0].start_mark.column
    end = _end(text, mapping)
    return text[:end] + "".join(indent + line for line in block_lines(flow(name), value, step)) + text[end:]


def _with_value(text: str, edit: Edit, key: Node, old: Node, value: Any) -> str:
    """Return a text with one value replaced; the new value is on one line and keeps the old quotes."""
    colon = _COLON.match(text, key.end_mark.index)
    if colon is None:
        refuse(edit, f"line {key.end_mark.line + 1}: its key has no value and no colon")
    style = getattr(old, "style", None)
    new = text_scalar(value, style) if isinstance(value, str) and style in {"'", '"'} else flow(value)
    start, end = old.start_mark.index, old.end_mark.index
    if start == end:  # the value is empty
        return f"{text[: colon.end()]} {new}{text[colon.end() :]}"
    if isinstance(old, CollectionNode) and not old.flow_style:  # it starts on the next line
        start, end = f"{text}\n".index("\n", colon.end()), _end(text, old)
        check_no_comment(edit, text[start:end])
        return f"{text[: colon.end()]} {new}{text[colon.end() : start]}{text[end:]}"
    end = _end(text, old) if style in {"|", ">"} else end
    check_no_comment(edit, text[start:end])
    return text[:start] + new + text[end:]


def _end(text: str, node: Node) -> int:
    """Return the offset after the last line of a node in block style."""
    return len(_TRAILING.sub("", text[: node.end_mark.index]))


def _step_of(root: MappingNode) -> str:
    """Return the indentation of the first nested block mapping; two spaces if there is none."""
    nested_blocks = (value for _, value in root.value if isinstance(value, MappingNode) and not value.flow_style)
    return " " * next((value.value[0][0].start_mark.column for value in nested_blocks), 2)
