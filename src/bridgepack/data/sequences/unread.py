"""What nobody reads: columns of a row, and fields of its turns, with what they hold."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from typing import Any

from bridgepack.config.layouts.contents import FLAGS, flag_of, holds, is_empty, is_media, plain_name
from bridgepack.config.recipe.layout import TURN_FIELD
from bridgepack.data.sequences.encoding import Loss
from bridgepack.records import LostKind
from bridgepack.records.rows import ReadRow
from bridgepack.records.sequences import UnreadCount

_SHOWN = 60


def flags_of(row: ReadRow) -> Mapping[str, Any]:
    """Return the flags about the loss that are columns of a row, e.g. `{"loss": 0}`."""
    unread = row.unread
    return {name: unread[name] for name in unread if plain_name(name) in FLAGS} if unread else unread


def unread_fields(unread: Mapping[str, Any], texts: Collection[str] = ()) -> Iterator[UnreadCount]:
    """Yield what the unread columns of one row hold; a copy of `texts`, which are read, is an identifier."""
    for name, value in unread.items():
        contents = holds(name, value)
        if contents is None or (contents == "flag" and _is_one(name, value)):
            continue
        if contents == "text" and _is_copy(name, value, texts):
            contents = "identifier"
        yield UnreadCount(name=name, holds=contents, num_rows=1, row_offset=0, example=_short(value))


def unread_turn_fields(
    turns: Iterable[Mapping[str, Any]], known_fields: Set[str], is_read: Callable[[str], bool]
) -> dict[str, Any]:
    """Return `messages.FIELD` -> its first value, for fields of turns that nobody reads and that hold something."""
    first_values: dict[str, Any] = {}
    for turn in turns:
        for name, value in turn.items():
            if (
                name not in known_fields
                and f"{TURN_FIELD}{name}" not in first_values
                and not is_empty(value)
                and not is_read(name)
            ):
                first_values[f"{TURN_FIELD}{name}"] = value
    return first_values


def is_written(path: str, value: Any, text: str) -> bool:
    """Return whether a rendered text has a key with its value as JSON, as templates write whole schemas and calls."""
    name = json.dumps(path.rpartition(".")[2], ensure_ascii=False)
    begin = "[{"[isinstance(value, Mapping)] if isinstance(value, (Mapping, list)) else ""
    values = {begin} if begin else {json.dumps(value, ensure_ascii=is_ascii, default=str) for is_ascii in (True, False)}
    return any(f"{name}{colon}{item}" in text for colon in (": ", ":") for item in values)


def losses_of(fields: Iterable[UnreadCount]) -> Iterator[Loss]:
    """Yield the losses among unread fields: text, and flags about the loss."""
    for field in fields:
        if field.holds == "text" and is_media(field.name):
            yield Loss(LostKind.MEDIA, f"{field.name} is not text: {field.example}")
        elif field.holds == "text":
            yield Loss(LostKind.UNREAD, f"{field.name} is not read: {field.example}")
        elif field.holds == "flag":
            yield Loss(
                LostKind.WEIGHT, f"{field.name} is {field.example}, but is not read: the row is trained like any other"
            )


def _is_one(name: str, value: Any) -> bool:
    """Return whether a flag says what happens anyway: the row is trained."""
    flags = value if isinstance(value, (list, tuple)) else [value]
    return all(flag_of(flag, name) == 1 for flag in flags)


def _is_copy(name: str, value: Any, texts: Collection[str]) -> bool:
    """Return whether a text, or every text in an object or a list, says what one of `texts` does."""
    if isinstance(value, str):
        words = value.strip()
        return any(words == text.strip() for text in texts)
    if not isinstance(value, (Mapping, list, tuple)):
        return False
    items = value.items() if isinstance(value, Mapping) else ((name, item) for item in value)
    contents = [(str(key), item) for key, item in items if holds(str(key), item) == "text"]
    return bool(contents) and all(_is_copy(key, item, texts) for key, item in contents)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    words = " ".join(text[: 4 * _SHOWN].split())
    return repr(words[:_SHOWN] + "..." if len(words) > _SHOWN or len(text) > 4 * _SHOWN else words)
