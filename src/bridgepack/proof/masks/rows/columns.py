"""What columns of a row hold: values at paths, texts with columns in braces, lists of objects or their JSON text."""

import json
from collections.abc import Mapping
from typing import Any

from bridgepack.config.recipe.layout import Column, parts_of
from bridgepack.proof.masks.rows.conversation import UnreadableRowError
from bridgepack.records.words import index_in

#: Between the pieces of a text, as docs/data.md says of `layout`.
_BLANK_LINE = "\n\n"


def value_at(row: Mapping[str, Any], path: str) -> Any:
    """Return the value of a column, or at a dotted path inside it; None if there is none."""
    if path in row:
        return row[path]
    value: Any = row
    for step in path.split("."):
        if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
            value = of_json(value, path)
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list):
            index = index_in(len(value), step)
            value = None if index is None else value[index]
        else:
            return None
    return value


def is_blank(value: Any) -> bool:
    """Return whether a value says nothing: null, white space, or an empty list or object."""
    return value is None or value in ([], {}) or (isinstance(value, str) and not value.strip())


def names_in(texts: str | tuple[str, ...] | None) -> list[str]:
    """Return the columns that a text, or its pieces, name in braces."""
    pieces = (texts,) if isinstance(texts, str) else texts or ()
    return [part.path for piece in pieces for part in parts_of(piece) if isinstance(part, Column)]


def text_of(row: Mapping[str, Any], texts: str | tuple[str, ...], *, strips_spaces: bool = False) -> str:
    """Return a text with a row's columns in it; of pieces, those whose columns are all empty are left out.

    Raises:
        UnreadableRowError: a column holds no text.
    """
    if isinstance(texts, str):
        return _filled_piece(row, texts, strips_spaces=strips_spaces)
    pieces = [
        piece
        for piece in texts
        if not names_in(piece) or not all(is_blank(value_at(row, name)) for name in names_in(piece))
    ]
    return _BLANK_LINE.join(_filled_piece(row, piece, strips_spaces=strips_spaces) for piece in pieces)


def _filled_piece(row: Mapping[str, Any], piece: str, *, strips_spaces: bool) -> str:
    texts = []
    for part in parts_of(piece):
        if not isinstance(part, Column):
            texts.append(part)
            continue
        value = value_at(row, part.path)
        if not isinstance(value, str):
            raise UnreadableRowError(f"{part.path} holds no text")
        texts.append(value.strip(" ") if strips_spaces else value)
    return "".join(texts)


def objects_at(row: Mapping[str, Any], path: str) -> list[dict[str, Any]]:
    """Return the objects in a column: a list of them, one, or the JSON text of either; none if it says nothing.

    Raises:
        UnreadableRowError: it holds something else.
    """
    value = of_json(value_at(row, path), path)
    if is_blank(value):
        return []
    objects = [value] if isinstance(value, Mapping) else value
    if not isinstance(objects, list) or not all(isinstance(item, Mapping) for item in objects):
        raise UnreadableRowError(f"{path} is no list of objects")
    return [dict(item) for item in objects]


def of_json(value: Any, name: str) -> Any:
    """Return the value that a text holds as JSON, other values unchanged; raises UnreadableRowError if it is none."""
    if not isinstance(value, str) or not value.strip():
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise UnreadableRowError(f"{name} is no JSON text") from None


def as_function(item: dict[str, Any]) -> dict[str, Any]:
    """Return a bare schema or call in OpenAI's form, {"type": "function", "function": ..}; others unchanged."""
    if "function" in item or not isinstance(item.get("name"), str):
        return item
    return {"type": "function", "function": {name: value for name, value in item.items() if name != "type"}}
