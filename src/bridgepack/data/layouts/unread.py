"""What nobody reads: columns of a row, and fields of its turns, with what they hold."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from types import MappingProxyType
from typing import Any

from bridgepack.config.layouts.contents import FLAGS, flag_of, holds, plain_name
from bridgepack.config.recipe.layout import TURN_FIELD
from bridgepack.data.layouts.values import is_empty
from bridgepack.data.sequences.encoding import Loss
from bridgepack.records import LostKind
from bridgepack.records.sequences import UnreadCount

__all__ = ["FLAGS", "flags_of", "losses_of", "unread_fields", "unread_of", "unread_turn_fields"]

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_SHOWN = 60


def unread_of(columns: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return column -> value of a row as a reader gave it, for the columns that nobody reads."""
    unread: Mapping[str, Any] = getattr(columns, "unread", _NOTHING)
    return unread


def flags_of(columns: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the flags about the loss that are columns of a row, e.g. `{"loss": 0}`."""
    unread = unread_of(columns)
    return {name: unread[name] for name in unread if plain_name(name) in FLAGS} if unread else unread


def unread_fields(unread: Mapping[str, Any], texts: Iterable[str] = ()) -> Iterator[UnreadCount]:
    """Yield what the unread columns of one row hold; a copy of one of `texts`, which are read, is an identifier."""
    for name, value in unread.items():
        contents = holds(name, value)
        if contents is None or (contents == "flag" and _is_one(value)):
            continue
        if contents == "text" and isinstance(value, str) and _is_copy(value, texts):
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


def losses_of(fields: Iterable[UnreadCount]) -> Iterator[Loss]:
    """Yield the losses among unread fields: text, and flags about the loss."""
    for field in fields:
        if field.holds == "text":
            yield Loss(LostKind.UNREAD, f"{field.name} is not read: {field.example}")
        elif field.holds == "flag":
            yield Loss(
                LostKind.WEIGHT, f"{field.name} is {field.example}, but is not read: the row is trained like any other"
            )


def _is_one(value: Any) -> bool:
    """Return whether a flag says what happens anyway: the row is trained."""
    return bool(flag_of(value) == 1)


def _is_copy(value: str, texts: Iterable[str]) -> bool:
    words = value.strip()
    return any(words == text.strip() for text in texts)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    words = " ".join(text[: 4 * _SHOWN].split())
    return repr(words[:_SHOWN] + "..." if len(words) > _SHOWN or len(text) > 4 * _SHOWN else words)
