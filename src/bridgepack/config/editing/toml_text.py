"""Edits the text of a TOML file with tomlkit, which keeps what it does not touch."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, InlineTable, Item, String, Table, Trivia

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


def edited_toml(text: str, edits: Sequence[Edit]) -> str:
    """Return the text of a TOML file after edits; lines that no edit touches stay as they are.

    Raises:
        CannotEditError: for None, which TOML does not have, and for what its layout forbids.
    """
    newline = newline_of(text)
    if newline == "\r\n" and text.count("\n") != text.count("\r\n"):
        raise CannotEditError("the file mixes two kinds of line endings. Convert it to one of them first.")
    lines = text.replace("\r\n", "\n")
    try:
        values = tomllib.loads(lines)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise CannotEditError(f"the file is not TOML: {error}. Edit it by hand.") from None
    for edit in edits:
        _check_no_null(edit, edit.value)
        for step in leaf_edits(values, edit):
            values = applied(values, step)
            lines = _changed(lines, step, values)
    return lines.replace("\n", newline)


def _check_no_null(edit: Edit, value: Any) -> None:
    if value is None:
        refuse(edit, "TOML has no null", f"Remove {edit.path} by hand, so that its default applies.")
    for item in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        _check_no_null(edit, item)


def _changed(text: str, edit: Edit, wanted: dict[str, Any]) -> str:
    """Return TOML with one key set or removed; it reads as wanted, or the edit is refused."""
    try:
        document = tomlkit.parse(text)
        if edit.value is REMOVE:
            _remove(document, edit)
        else:
            _set(document, edit)
        result = tomlkit.dumps(document)
        is_right = is_same(tomllib.loads(result), wanted) and _comments(text) == _comments(result)
    except (TOMLKitError, tomllib.TOMLDecodeError) as error:
        refuse(edit, f"its TOML cannot be taken apart: {error}")
    if not is_right:
        refuse(edit, "its table is laid out in a way that would lose entries or comments")
    return result


def _comments(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.lstrip().startswith("#")]


def _remove(document: tomlkit.TOMLDocument, edit: Edit) -> None:
    *sections, leaf = edit.keys
    table: Any = document
    for name in sections:
        table = table[name]
    if isinstance(table[leaf], Table | AoT) and "#" in table[leaf].as_string():
        refuse(edit, "comments stand in it or between it and the next table")
    table.remove(leaf)


def _set(document: tomlkit.TOMLDocument, edit: Edit) -> None:
    table: Any = document
    *sections, leaf = edit.keys
    for depth, name in enumerate(edit.keys):
        if name not in table:
            _add(document, table, name, nested(edit.keys[depth + 1 :], edit.value))
            return
        if depth < len(sections):
            table = table[name]
    old = table[leaf]
    rendering = old.as_string() if isinstance(old, Item) else ""
    if isinstance(old, Table | AoT) or ("\n" in rendering and "#" in rendering):
        refuse(edit, "its old value is a table, or a list with comments")
    keeps_quotes = isinstance(old, String) and rendering.startswith("'") and isinstance(edit.value, str)
    if keeps_quotes and "'" not in edit.value and edit.value.isprintable():
        table[leaf] = tomlkit.string(edit.value, literal=True)
    else:
        table[leaf] = _inline(edit.value)


def _add(document: tomlkit.TOMLDocument, table: Any, name: str, value: Any) -> None:
    """Put a new key right after the last one of its table, before the comments that follow it."""
    is_super = isinstance(table, Table) and table.is_super_table()
    if isinstance(value, Mapping) and (table is document or is_super):
        table[name] = tomlkit.item(value)
        return
    place = _last_entry(document, table)
    if place is None:
        item = _inline(value)
        if isinstance(table, InlineTable) and table:
            item.trivia.indent = " "
        table[name] = item
        return
    line = tomlkit.document()
    line[name] = _inline(value)
    start = "" if place.trail.endswith("\n") else "\n"
    place.trail += start + place.indent + tomlkit.dumps(line)


def _inline(value: Any) -> Item:
    """Return a value on one line: mappings become inline tables, also in lists."""
    if isinstance(value, list):
        array = tomlkit.array()
        for item in value:
            array.append(_inline(item))
        return array
    if not isinstance(value, Mapping):
        scalar: Item = tomlkit.item(value)
        return scalar
    table = tomlkit.inline_table()
    for name, below in value.items():
        table[name] = _inline(below)
    return table


def _last_entry(document: tomlkit.TOMLDocument, table: Any) -> Trivia | None:
    """Return the white space and comment around a table's last entry, or its header; None when neither has a line."""
    if isinstance(table, Table) and not table.is_super_table():
        body, header = table.value.body, table.trivia
    elif table is document:
        body, header = document.body, None
    else:
        return None
    entries = [item for key, item in body if key is not None and not isinstance(item, Table | AoT)]
    return entries[-1].trivia if entries else header
