"""What an edit of a recipe file is, what it does to plain values, and the error for one that cannot be made."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import PurePath
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
    """One change of a recipe file.

    Attributes:
        path: dotted path in the file's own terms, e.g. `packing.pad_seq_to_mult`.
        value: None, bool, int, float, str, Path, list or dict of these; or `REMOVE`.
    """

    path: str
    value: Any

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
    if edit.value is REMOVE:
        found, typed = f"{edit.path} cannot be removed", f"Remove {edit.path} by hand."
    else:
        found = f"{edit.path} cannot be set to {shown(edit.value)}"
        typed = f"Set {edit.path} to {shown(edit.value)} by hand."
    raise CannotEditError(f"{found}: {reason}. {by_hand or typed}", edit)


def with_text_paths(edit: Edit) -> Edit:
    """Return an edit whose paths of the file system are text, as a bridgepack recipe has them."""
    return replace(edit, value=_texts(edit.value))


def _texts(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _texts(item) for key, item in value.items()}
    return [_texts(item) for item in value] if isinstance(value, list | tuple) else value


def has_file_path(value: Any) -> bool:
    """Say whether a value is, or holds, a path of the file system."""
    if isinstance(value, Mapping):
        return any(has_file_path(item) for item in value.values())
    return isinstance(value, PurePath) or (isinstance(value, list | tuple) and any(map(has_file_path, value)))


def applied(values: Mapping[str, Any], edit: Edit) -> dict[str, Any]:
    """Return plain values after an edit; sections that are missing or None are made.

    Raises:
        CannotEditError: when a plain value stands where the path needs a section.
    """
    result = copy.deepcopy(dict(values))
    *sections, leaf = edit.keys
    node: Any = result
    for index, name in enumerate(sections):
        if node.get(name) is None:
            if edit.value is REMOVE:
                return result
            node[name] = {}
        node = node[name]
        if not isinstance(node, dict):
            refuse(edit, f"{'.'.join(sections[: index + 1])} is {shown(node)} in the file, not a section")
    if edit.value is REMOVE:
        node.pop(leaf, None)
    else:
        node[leaf] = _plain(edit.value)
    return result


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def value_at(values: Any, keys: tuple[str, ...], default: Any = None) -> Any:
    """Return what nested values hold at a path, or `default`."""
    for key in keys:
        if not isinstance(values, Mapping) or key not in values:
            return default
        values = values[key]
    return values


def leaf_edits(values: Mapping[str, Any], edit: Edit) -> Iterator[Edit]:
    """Give the edits that make a change key by key, so that what stays in a section keeps its text."""
    missing = object()
    old = value_at(values, edit.keys, missing)
    if old is missing:
        if edit.value is not REMOVE:
            yield edit
    elif _is_section(old) and _is_section(edit.value):
        for key, value in edit.value.items():
            yield from leaf_edits(values, Edit(path=f"{edit.path}.{key}", value=value))
        for key in [key for key in old if key not in edit.value]:
            yield Edit(path=f"{edit.path}.{key}", value=REMOVE)
    elif not is_same(old, edit.value):
        yield edit


def _is_section(value: Any) -> bool:
    """Say whether a value is a mapping with entries that dotted paths lead to."""
    return isinstance(value, Mapping) and bool(value) and all(isinstance(key, str) and "." not in key for key in value)


def is_same(left: Any, right: Any) -> bool:
    """Say whether two plain values are equal and of the same types; the order of keys does not count."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(is_same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(is_same, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    return type(left) is type(right) and bool(left == right)
