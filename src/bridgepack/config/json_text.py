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


def _object_of(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        name = next(name for index, name in enumerate(names) if name in names[:index])
        raise RepeatedKey(f"an object has the key {json.dumps(name)[:60]} twice, and only one value can be meant")
    return values
