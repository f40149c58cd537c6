"""Changes of a recipe file: how they are applied one by one, and the error for an impossible one."""

import re
from collections.abc import Callable, Mapping, Sequence
from pprint import pformat
from typing import Any, Literal, NoReturn

from bridgepack.config.errors import quote
from bridgepack.errors import ConfigError
from bridgepack.records import Change

Kind = Literal["recipe", "container"]
"""`recipe`: the file gives an `SFTRecipe`; `container`: Megatron-Bridge's `ConfigContainer`."""
_COMMENT = re.compile(r"(?:^|\s)#", re.MULTILINE)


class CannotEditError(ConfigError):
    """An edit that must be made by hand.

    Attributes:
        edit: the impossible edit; None if the file cannot be edited at all.
    """

    def __init__(self, message: str, edit: Change | None = None) -> None:
        super().__init__(message)
        self.edit = edit


def refuse(edit: Change, reason: str, by_hand: str = "") -> NoReturn:
    """Raise for an impossible edit; `reason` is a clause, `by_hand` says what to type.

    Raises:
        CannotEditError: always.
    """
    value = quote(edit.value)
    cure = by_hand or f"Set {edit.path} to {value} by hand."
    raise CannotEditError(f"{edit.path} cannot be set to {value}: {reason}. {cure}", edit)


def edit_text(
    text: str, edits: Sequence[Change], *, read: Callable[[str], dict[str, Any]], change: Callable[[str, Change], str]
) -> str:
    """Return a text after edits; an edit that does not read back as its value is refused.

    Args:
        text: content of a file.
        edits: applied in order.
        read: returns the plain values of a text.
        change: returns a text with one edit made; it may get unusual layouts wrong.

    Raises:
        CannotEditError: `read` cannot read the text, or an edit cannot be made.
    """
    has_returns = "\r\n" in text
    if has_returns and text.count("\n") != text.count("\r\n"):
        raise CannotEditError("the file mixes two kinds of line endings. Convert it to one kind first.")
    text = text.replace("\r\n", "\n")
    values = read(text)
    for edit in edits:
        new_values = _apply(values, edit)
        if _is_same(values, new_values):
            continue
        new_text = change(text, edit)
        try:
            is_right = _is_same(read(new_text), new_values)
        except CannotEditError:
            is_right = False
        if not is_right:
            lines = zip(text.split("\n"), new_text.split("\n"), strict=False)
            line = next((number for number, (old, new) in enumerate(lines, 1) if old != new), text.count("\n") + 1)
            refuse(edit, f"line {line}: an anchor, a merge key (<<), a non-text key or the layout prevents it")
        text, values = new_text, new_values
    return text.replace("\n", "\r\n") if has_returns else text


def check_no_comment(edit: Change, old: str) -> None:
    """Check that a replaced stretch of text holds no comments; they do not fit into a one-line value.

    Raises:
        CannotEditError: comments would be lost.
    """
    if "\n" in old and _COMMENT.search(old):
        refuse(edit, "its old value contains comments")


def nest(names: Sequence[str], value: Any) -> Any:
    """Return a value wrapped in one section per name, the first name outermost."""
    for name in reversed(names):
        value = {name: value}
    return value


def _apply(values: Mapping[str, Any], edit: Change) -> dict[str, Any]:
    result = dict(values)
    *sections, leaf = edit.path.split(".")
    node: dict[str, Any] = result
    for index, name in enumerate(sections):
        below = node.get(name)
        if below is not None and not isinstance(below, dict):
            refuse(edit, f"{'.'.join(sections[: index + 1])} is {quote(below)} in the file, not a section")
        node[name] = dict(below or {})  # a copy: a YAML alias may share the section
        node = node[name]
    node[leaf] = edit.value
    return result


def _is_same(first: Any, second: Any) -> bool:
    """Return whether two plain values are equal and of equal types, regardless of key order."""
    return pformat(first) == pformat(second)
