"""Reads texts of JSON, and refuses an object with two values under one key: parsers keep the last in silence."""

import json
from collections.abc import Sequence
from typing import Any


class RepeatedKey(ValueError):
    """An object has a key twice."""


def parse_json(text: str) -> Any:
    """Return the value of a text of JSON.

    Raises:
        ValueError: the text is not JSON; a RepeatedKey where an object in it has a key twice.
        RecursionError: it is nested too deeply.
    """
    return json.loads(text, object_pairs_hook=_object_of)


def parsed_json(text: str) -> Any:
    """Return the list or object that a text is in JSON, to look at; None if it is none.

    Of a key that is repeated, the last value stays: what only looks need not refuse it, as what reads it does.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict | list) else None


def parsed_text(text: str) -> str | None:
    """Return the text that a text is in JSON, between quotes; None if it is none."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, str) else None


def _object_of(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        name = next(name for index, name in enumerate(names) if name in names[:index])
        raise RepeatedKey(f"an object has the key {json.dumps(name)[:60]} twice, and only one value can be meant")
    return values
