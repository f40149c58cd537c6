"""Functions of texts alone: whether a tokenizer can encode one, and what two of them share."""

import re
from collections.abc import Callable, Iterable

from bridgepack.errors import RowError
from bridgepack.records import DropReason


def check_is_unicode(text: str) -> None:
    """Refuse a text with a lone surrogate, e.g. half an emoji from JSON, which no tokenizer can encode.

    Raises:
        RowError: it has one; reason `invalid_field`.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        detail = f"the text contains U+{ord(text[error.start]):04X}, half of a character that was cut in two"
        raise RowError(DropReason.INVALID_FIELD, detail) from None


def finder_of(parts: Iterable[str]) -> Callable[[str], object]:
    """Return a function that returns something true for texts with any of some parts; faster than `in` for each."""
    return re.compile("|".join(map(re.escape, parts)) or "(?!)").search


def is_unicode(text: str) -> bool:
    """Return whether a text has no lone surrogate."""
    return text.encode(errors="ignore").decode() == text


def common_prefix(first: str, second: str) -> int:
    """Return how many leading characters two texts share: "abc", "abd" -> 2."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def without_open_tag(text: str) -> str:
    """Return a text without an incomplete tag at its end: "<|bot|><th" -> "<|bot|>"."""
    place = text.rfind("<")
    return text if place < 0 or ">" in text[place:] else text[:place]
