"""Turns pydantic's errors into bridgepack's messages: field, value found, what is allowed, what to do."""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType, NoneType
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from bridgepack.config.walking import SHAPE_PREFIX, Place, kinds_at, walk
from bridgepack.errors import ConfigError, Problem

_TAG_ERRORS = frozenset({"union_tag_invalid", "union_tag_not_found"})
_SECTION_ERRORS = frozenset({"model_type", "model_attributes_type", "dict_type"})
#: Index of a list entry; an unknown field in several entries is reported once.
_INDEX = re.compile(r"\.\d+\.")
_SOURCE = "a path, a section {path: PATH} or {dataset: ID}, or a list of these"
_ROWS_CURE = " Write rows to a file and name it; in Python `build` takes a datasets.Dataset, too."
_BOUNDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "greater_than_equal": ("ge", "at least {}. Raise it."),
        "greater_than": ("gt", "more than {}. Raise it."),
        "less_than_equal": ("le", "at most {}. Lower it."),
        "less_than": ("lt", "less than {}. Lower it."),
        "string_pattern_mismatch": ("pattern", "text matching {}. Rename it."),
        "string_too_short": ("min_length", "text of at least {} character. Fill it in or remove the field."),
        "string_too_long": ("max_length", "text of at most {} characters. Shorten it."),
    }
)
_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "int_type": "a whole number, without quotes. Write a number.",
        "int_parsing": "a whole number. Write a number.",
        "int_from_float": "a whole number. Remove the fraction.",
        "bool_type": "true or false, without quotes.",
        "bool_parsing": "true or false.",
        "string_type": "text. Put it in quotes.",
        **dict.fromkeys(_SECTION_ERRORS, "a section with named fields."),
        "tuple_type": "a list.",
        "float_parsing": "a number.",
        "float_type": "a number.",
        "finite_number": "a finite number. Write a number.",
        "invalid_key": "text as a field's name. Rename it.",
    }
)


def config_error(
    error: ValidationError,
    model: type[BaseModel],
    *,
    what: str = "recipe",
    option: str = "--set",
    moved: tuple[str, str] = ("", ""),
) -> ConfigError:
    """Return one ConfigError with a line for every wrong field of a model.

    `what` names the file's content and `option` the option that sets a field, for messages; `moved` is (dotted path of
    a section in the model, its path in the file).
    """
    found: dict[str, tuple[Place, list[ErrorDetails]]] = {}
    for detail in error.errors(include_url=False):
        place = walk(model, detail["loc"])
        if place.path.startswith(moved[0]):
            place = replace(place, path=moved[1] + place.path.removeprefix(moved[0]))
        is_unknown = detail["type"] == "extra_forbidden"
        key = _INDEX.sub(".", place.path) if is_unknown else place.path
        if not _is_echo(detail):
            found.setdefault(key, (place, []))[1].append(detail)
    lines = {place.path: _line(place, details, what, option) for place, details in found.values()}
    listed = f"{len(lines)} fields are wrong:\n" + "\n".join(f"  {line}" for line in lines.values())
    wrong = ConfigError(next(iter(lines.values())) if len(lines) == 1 else listed)
    wrong.problems = tuple(Problem(field=path, message=line) for path, line in lines.items())
    return wrong


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name closest to `name`, or None if none is close."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None


def shown(value: Any) -> str:
    """Return a value as an error message shows it: its repr, cut at 80 characters."""
    text = repr(value)
    text = " ".join(text.split()) if "\n" in text else text
    return text if len(text) <= 80 else f"{text[:77]}..."


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "Use one of these.") -> str:
    """Return a hint with the known name closest to `name`, or `otherwise` if none is close."""
    nearest = nearest_name(name, known)
    return f"Did you mean {nearest}?" if nearest else otherwise


def known_names(name: str, known: Iterable[str]) -> str:
    """Return the message part for an unknown name: the known names and the closest one."""
    known = list(known)
    return f"allowed: {', '.join(known)}. {did_you_mean(name, known)}"


def _is_echo(detail: ErrorDetails) -> bool:
    """Return whether pydantic calls a list too short only because its entries are wrong."""
    return detail["type"] == "too_short" and len(detail["input"]) >= detail.get("ctx", {}).get("min_length", 0)


def _line(place: Place, details: list[ErrorDetails], what: str, option: str) -> str:
    """Return the message line of one field; several errors of one field are its alternative types."""
    detail, path, kinds = details[0], place.path, kinds_at(place)
    value, kind, context = detail["input"], detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        others = f" Other entries with it: {len(details) - 1}." if len(details) > 1 else ""
        return _unknown_field(place, str(detail["loc"][-1])) + others
    if kind == "missing":
        return _missing(place, what, option)
    if kind == "value_error":
        reason = str(context.get("error", detail["msg"]))
        return f"{path}{reason}" if reason.startswith(" ") or not path else f"{path}.{reason}"
    if kind in _TAG_ERRORS | _SECTION_ERRORS and kinds:
        return _wrong_kind(path, value, kinds)
    if kind == "literal_error":
        return f"{path} is {shown(value)}; {_wrong_literal(value, str(context.get('expected', '')))}"
    shapes = list(dict.fromkeys(_shape(one) for one in details))
    if len(shapes) > 1:
        return f"{path} is {shown(value)}; allowed: {', '.join(shapes[:-1])} or {shapes[-1]}. Write one of these."
    return f"{path or what} is {shown(value)}; allowed: {_allowed(detail)}"


def _shape(detail: ErrorDetails) -> str:
    return _allowed(detail).partition(". ")[0].partition(", without")[0].removesuffix(".")


def _unknown_field(place: Place, name: str) -> str:
    """Return the message line for an unknown field; if another kind of the section has it, the message says so."""
    kind, known = place.kind, place.known
    others = [other for other, fields in place.fields_of_kinds.items() if name in fields]
    text = f"{place.path} is not a field{f' of {kind}' if kind else ''}"
    if not others:
        return f"{text}; {known_names(name, known)}"
    nearest = nearest_name(name, known)
    section = place.path.rpartition(".")[0]
    change = f"Set {section}.kind to {' or '.join(others)}, or remove it."
    hint = f"Did you mean {nearest}?" if nearest else change
    have = f"{', '.join(others[:-1])} and {others[-1]} have" if len(others) > 1 else f"{others[0]} has"
    return f"{text}; {have} it. {hint} {kind} has: {', '.join(known)}."


def _missing(place: Place, what: str, option: str) -> str:
    section = place.path.split(".")[-2:][0]
    needs = f"a {place.kind} {section} needs it" if place.kind else "it has no default"
    meaning = f" ({place.meaning.rstrip('.')})" if place.meaning else ""
    return f"{place.path} is missing{meaning}; {needs}. Set it in the {what} or with {option} {place.path}=VALUE."


def _wrong_kind(path: str, value: Any, kinds: tuple[str, ...]) -> str:
    if not isinstance(value, Mapping):
        example = (nearest_name(value, kinds) if isinstance(value, str) else None) or kinds[0]
        return f"{path} is {shown(value)}; allowed: a section with named fields. Write {path}: {{kind: {example}}}."
    tag = value.get("kind")
    found = "is missing" if tag is None else f"is {shown(tag)}"
    return f"{path}.kind {found}; {known_names(str(tag or ''), kinds)}"


def _wrong_literal(value: Any, expected: str) -> str:
    names = re.findall(r"'([^']*)'", expected)
    nearest = None
    if isinstance(value, str) and value:
        nearest = nearest_name(value, names) or next((name for name in names if name.startswith(value)), None)
    return f"allowed: {expected}. {f'Did you mean {nearest}?' if nearest else 'Use one of these.'}"


def _allowed(detail: ErrorDetails) -> str:
    """Return what is allowed and what to do."""
    kind, context, location = detail["type"], detail.get("ctx", {}), detail["loc"]
    if kind == "union_tag_invalid" or (kind == "string_type" and str(location[-1]).startswith(SHAPE_PREFIX)):
        is_plain = isinstance(detail["input"], int | float | list | set | NoneType)
        return f"{_SOURCE}.{'' if is_plain else _ROWS_CURE}"
    if kind == "too_short":
        least = context["min_length"]
        return f"a list of at least {least} {'entry' if least == 1 else 'entries'}. Add one or remove the field."
    if kind in _BOUNDS:
        name, text = _BOUNDS[kind]
        return text.format(context.get(name))
    return _TYPES.get(kind, f"{detail['msg']}.")
