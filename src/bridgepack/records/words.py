"""Counts and values as words, for messages and reports."""

import json
from typing import Any


def count_text(number: int, noun: str, plural: str = "") -> str:
    """Return `1 row`, `2 rows` or `1,204 rows`; `plural` where an `s` does not make it, e.g. `batches`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def value_text(value: Any) -> str:
    """Return a setting's value as in YAML: `true`, `null`, 8, [1, 2]."""
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def kind_of(value: Any) -> str:
    """Return the name of a value's class with its article: `an int`, `a list`."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def is_whole_number(text: str) -> bool:
    """Return whether a text is digits of ASCII alone; Python also reads `1_0` and digits of other scripts."""
    return text.isascii() and text.isdecimal()


def index_in(count: int, text: str) -> int | None:
    """Return the index from 0 that a text writes of so many items; None if it is none of theirs."""
    digits = text.lstrip("0")
    if not is_whole_number(text) or len(digits) > len(str(count)):  # Python reads no number of 4,301 digits
        return None
    return index if (index := int(digits or "0")) < count else None
