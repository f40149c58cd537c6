"""What an edit of a recipe file is, what it does to plain values, and the error for one that cannot be made."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pprint import pformat
from typing import Any, Final, Literal, NoReturn

from bridgepack.config.errors import shown
from bridgepack.errors import ConfigError

Kind = Literal["recipe", "container"]
"""`recipe`: gives an `SFTRecipe`; `container`: gives Megatron-Bridge's `ConfigContainer`."""


class _Remove(Enum):
    REMOVE = "REMOVE"

    def __repr__(self) -> str:
        return self.value


REMOVE: Final = _Remove.REMOVE
"""The value of an edit that deletes its key."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """One change of a recipe file."""

    path: str  #: dotted path in the file's own terms, e.g. `packing.pad_seq_to_mult`.
    value: Any  #: None, bool, int, float, str, Path, list or dict of these; or `REMOVE`

    @property
    def keys(self) -> tuple[str, ...]:
        """The names along the path."""
        return tuple(self.path.split("."))


class CannotEditError(ConfigError):
    """An edit that has to be made by hand.

    Attributes:
        edit: the one that cannot be made; None when no edit at all can be made in the file.
    """

    def __init__(self, message: str, edit: Edit | None = None) -> None:
        super().__init__(message)
        self.edit = edit


def refuse(edit: Edit, reason: str, by_hand: str = "") -> NoReturn:
    """Raise for an edit that cannot be made.

    Args:
        edit: the edit.
        reason: a clause that says what in the file is in the way.
        by_hand: what to type instead; by default the value at the path.

    Raises:
        CannotEditError: always.
    """
    value = shown(edit.value)
    found, typed = (
        ("removed", f"Remove {edit.path} by hand.")
        if edit.value is REMOVE
        else (f"set to {value}", f"Set {edit.path} to {value} by hand.")
    )
    raise CannotEditError(f"{edit.path} cannot be {found}: {reason}. {by_hand or typed}", edit)


def applied(values: Mapping[str, Any], edit: Edit) -> dict[str, Any]:
    """Return plain values after an edit; sections that are missing or None are made.

    Raises:
        CannotEditError: when a plain value stands where the path needs a section.
    """
    result = dict(values)
    *sections, leaf = edit.keys
    node: dict[str, Any] = result
    for index, name in enumerate(sections):
        below = node.get(name)
        if below is not None and not isinstance(below, dict):
            refuse(edit, f"{'.'.join(sections[: index + 1])} is {shown(below)} in the file, not a section")
        node[name] = dict(below or {})  # a copy: an alias may lead to the same section
        node = node[name]
    if edit.value is REMOVE:
        del node[leaf]
    else:
        node[leaf] = edit.value
    return result


def leaf_edits(values: Mapping[str, Any], edit: Edit) -> Iterator[Edit]:
    """Yield the edits that make a change key by key, so that what stays in a section keeps its text."""
    found: Any = values
    for key in edit.keys:
        if not isinstance(found, Mapping) or key not in found:
            if edit.value is not REMOVE:
                yield edit
            return
        found = found[key]
    if _is_section(found) and _is_section(edit.value):
        new = dict.fromkeys(found, REMOVE) | edit.value
        for key in [*edit.value, *(key for key in found if key not in edit.value)]:
            yield from leaf_edits(values, Edit(path=f"{edit.path}.{key}", value=new[key]))
    elif not is_same(found, edit.value):
        yield edit


def _is_section(value: Any) -> bool:
    """Say whether a value is a mapping with entries that dotted paths lead to."""
    return isinstance(value, Mapping) and bool(value) and all(isinstance(key, str) and "." not in key for key in value)


def is_same(left: Any, right: Any) -> bool:
    """Say whether two plain values are equal and of the same types; the order of keys does not count."""
    return pformat(left) == pformat(right)


def nested(names: Sequence[str], value: Any) -> Any:
    """Return a value inside a section for each name, the first outermost."""
    for name in reversed(names):
        value = {name: value}
    return value


def newline_of(text: str) -> str:
    """Return the line ending of a text: that of its first line."""
    return "\r\n" if text.partition("\n")[0].endswith("\r") else "\n"
