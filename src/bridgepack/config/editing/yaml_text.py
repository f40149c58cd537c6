"""Edits the text of a YAML document: replaces the text of one value, or adds lines; writes values as YAML text.

ruamel.yaml gives the positions of keys and values. Its round trip is not used because it re-indents untouched lists.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node

from bridgepack.config.editing.edits import CannotEditError, check_no_comment, edit_text, nest, refuse
from bridgepack.records import Change
from bridgepack.records.words import kind_of

_PLAIN = re.compile(r"(?:\.{0,2}/)?[A-Za-z_][\w./+-]*(?: [\w./+(-][\w./+()-]*)*", re.ASCII)
#: Characters of a line up to which a list of sections stays on it.
_WIDEST = 80
_WORDS_THAT_ARE_NO_TEXT = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "null"})


def flow(value: Any) -> str:
    """Return a value on one line: `8`, `'text'`, `[1, 2]`, `{a: 1}`."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str):
        return text_scalar(value)
    return _float(value) if isinstance(value, float) else json.dumps(value)


def block_lines(
    key: str, value: Any, step: str, *, comments: Mapping[str, str] = MappingProxyType({}), path: str = ""
) -> Iterator[str]:
    """Yield the lines of one entry of a block mapping; `key` is as written, `step` is the indentation per level.

    `comments` maps dotted paths to comments; `path` is the entry's dotted path.
    """
    comment = f" # {comments[path]}" if path in comments else ""
    if not isinstance(value, Mapping) or not value:
        line = f"{key}: {flow(value)}"
        if len(line) <= _WIDEST or not isinstance(value, list | tuple) or not isinstance(value[0], Mapping):
            yield f"{line}{comment}"
            return
        yield f"{key}:{comment}"
        yield from (f"{step}- {flow(item)}" for item in value)
        return
    yield f"{key}:{comment}"
    for name, item in value.items():
        for line in block_lines(flow(name), item, step, comments=comments, path=f"{path}.{name}"):
            yield step + line


def text_scalar(text: str, style: str | None = None) -> str:
    """Return a string as a YAML scalar, in the given quote style if possible, else in quotes only if needed."""
    if not text.isprintable() or style == '"':
        return '"' + "".join(map(_escape, text)) + '"'
    is_plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS_THAT_ARE_NO_TEXT
    return text if is_plain and style != "'" else "'" + text.replace("'", "''") + "'"


def _escape(character: str) -> str:
    if character.isprintable() or character in '\n\r\t"\\':
        return json.dumps(character, ensure_ascii=False)[1:-1]
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _float(value: float) -> str:
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    mantissa, exponent, power = repr(value).partition("e")
    return mantissa + (".0" if "." not in mantissa else "") + exponent + power


_COLON = re.compile(r"\s*:")
#: Blank lines and comments at the end of a section, which ruamel counts as part of it.
_TRAILING = re.compile(r"(?:\n[ \t]*(?:#[^\n]*)?)*\Z")


def edited_yaml(text: str, edits: Sequence[Change]) -> str:
    """Return the text of one YAML document after edits; lines that no edit touches stay as they are.

    Raises:
        CannotEditError: anchors, merge keys or the layout prevent an edit.
    """
    return edit_text(text, edits, read=_sections, change=_change)


def _sections(text: str) -> dict[str, Any]:
    try:
        values = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, KeyError, RecursionError) as error:
        message = " ".join(str(error).split())
        raise CannotEditError(f"the file is not one YAML document: {message[:300]}. Edit it by hand.") from None
    if values is not None and not isinstance(values, dict):
        raise CannotEditError(f"the file holds {kind_of(values)}, not sections. Edit it by hand.")
    return values or {}


def _change(text: str, edit: Change) -> str:
    root, keys = YAML(typ="safe", pure=True).compose(text), edit.path.split(".")
    if not isinstance(root, MappingNode):  # only comments
        lines = block_lines(flow(keys[0]), nest(keys[1:], edit.value), "  ")
        return text + ("\n" if text and not text.endswith("\n") else "") + "".join(f"{line}\n" for line in lines)
    node = root
    while True:
        name, value = keys[0], nest(keys[1:], edit.value)
        entry = next((entry for entry in node.value if entry[0].value == name), None)
        if entry is None:
            return _with_entry(text, node, name, value, _step_of(root))
        key, old = entry
        if len(keys) == 1 or not isinstance(old, MappingNode):
            return _with_value(text, edit, key, old, value)
        node = old
        del keys[0]


def _with_entry(text: str, mapping: MappingNode, name: str, value: Any, step: str) -> str:
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


def _with_value(text: str, edit: Change, key: Node, old: Node, value: Any) -> str:
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
    return len(_TRAILING.sub("", text[: node.end_mark.index]))


def _step_of(root: MappingNode) -> str:
    nested_blocks = (value for _, value in root.value if isinstance(value, MappingNode) and not value.flow_style)
    return " " * next((value.value[0][0].start_mark.column for value in nested_blocks), 2)
