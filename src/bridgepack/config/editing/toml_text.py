"""Edits the text of a TOML file with tomlkit, which keeps all other text."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, InlineTable, Item, String, Table, Trivia

from bridgepack.config.editing.edits import CannotEditError, check_no_comment, edited, nested, refuse
from bridgepack.records import Change


def edited_toml(text: str, edits: Sequence[Change]) -> str:
    """Return the text of a TOML file after edits; lines that no edit touches stay as they are.

    Raises:
        CannotEditError: the value is None, which TOML lacks, or the file's layout prevents the edit.
    """
    for edit in edits:
        if edit.value is None:
            refuse(edit, "TOML has no null", f"Remove {edit.path} by hand, so that its default applies.")
    return edited(text, edits, read=_sections, change=_changed)


def _sections(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise CannotEditError(f"the file is not TOML: {error}. Edit it by hand.") from None


def _changed(text: str, edit: Change) -> str:
    try:
        document = tomlkit.parse(text)
        _set(document, edit)
        return tomlkit.dumps(document)
    except TOMLKitError as error:
        refuse(edit, f"tomlkit cannot parse it: {error}")


def _set(document: tomlkit.TOMLDocument, edit: Change) -> None:
    table: Any = document
    keys = edit.path.split(".")
    while len(keys) > 1 and keys[0] in table:
        table = table[keys.pop(0)]
    name, value = keys[0], nested(keys[1:], edit.value)
    if name not in table:
        _add(document, table, name, value)
        return
    old = table[name]
    rendering = old.as_string() if isinstance(old, Item) else ""
    check_no_comment(edit, rendering)
    if isinstance(old, Table | AoT):
        refuse(edit, "its old value is a table")
    keeps_quotes = isinstance(old, String) and rendering.startswith("'") and isinstance(value, str)
    is_literal = keeps_quotes and "'" not in value and value.isprintable()
    table[name] = tomlkit.string(value, literal=True) if is_literal else _inline(value)


def _add(document: tomlkit.TOMLDocument, table: Any, name: str, value: Any) -> None:
    """Insert a new key right after the last key of its table, before any comments that follow."""
    is_super = isinstance(table, Table) and table.is_super_table()
    place = None if is_super else _last_entry(document, table)
    if isinstance(value, Mapping) and (table is document or is_super):
        table[name] = tomlkit.item(value)
    elif place is not None:
        start = "" if place.trail.endswith("\n") else "\n"
        place.trail += start + place.indent + tomlkit.dumps({name: _inline(value)})
    else:
        item = _inline(value)
        if isinstance(table, InlineTable) and len(table):
            item.trivia.indent = " "
        table[name] = item


def _last_entry(document: tomlkit.TOMLDocument, table: Any) -> Trivia | None:
    """Return the white space and comment around a table's last entry, or its header; None if neither has a line."""
    if isinstance(table, Table):
        body, header = table.value.body, table.trivia
    elif table is document:
        body, header = document.body, None
    else:
        return None
    entries = [item for key, item in body if key is not None and not isinstance(item, Table | AoT)]
    return entries[-1].trivia if entries else header


def _inline(value: Any) -> Item:
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
