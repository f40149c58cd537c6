"""Turns pydantic's errors into bridgepack's: field, value found, what is allowed, what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from bridgepack.errors import ConfigError

#: Sections of several kinds, told apart by their field `kind`.
_KINDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"preprocessing": ("chat", "prompt_completion", "tokenized"), "method": ("full", "lora", "dora")}
)
_ENVIRONMENT = "environment"
#: How a location marks a step into one shape of a source; see `config.data`.
_SHAPE_PREFIX = "as "
_SOURCE_TYPE_ERRORS = frozenset({"string_type", "union_tag_invalid"})


def config_error(error: ValidationError, model: type[BaseModel]) -> ConfigError:
    """Return one ConfigError with a line for every wrong field."""
    details = [detail for detail in error.errors(include_url=False) if not _is_echo(detail)]
    lines = list(dict.fromkeys(_line(detail, model) for detail in details))
    if len(lines) == 1:
        return ConfigError(lines[0])
    return ConfigError(f"{len(lines)} fields are wrong:\n" + "\n".join(f"  {line}" for line in lines))


def unknown_path_error(path: str, wrong: str, parent: Any) -> ConfigError:
    """Return the error for a dotted path that leads nowhere."""
    known = sorted(str(key) for key in parent) if isinstance(parent, dict) else []
    leaf = wrong.rpartition(".")[2]
    return ConfigError(f"{path}: there is no section {wrong!r}; {known_names(leaf, known)}")


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most like `name`, or None when none is close."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None


def shown(value: Any) -> str:
    """Return a value as an error message shows it: its repr, cut at 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def known_names(name: str, known: list[str]) -> str:
    """Return what a message says of a name that is none of the `known` ones."""
    if not known:
        return "it would lie below a plain value. Set the value as a whole."
    nearest = nearest_name(name, known)
    hint = f"Did you mean {nearest}?" if nearest else "Use one of these."
    return f"allowed: {', '.join(known)}. {hint}"


def _is_echo(detail: ErrorDetails) -> bool:
    """Say whether a list is called too short only because its entries are wrong."""
    return detail["type"] == "too_short" and len(detail["input"]) >= detail.get("ctx", {}).get("min_length", 0)


def _line(detail: ErrorDetails, model: type[BaseModel]) -> str:
    path = _dotted(detail["loc"])
    value, kind, context = detail["input"], detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return f"{path} is not a field{_unknown_field(model, detail['loc'])}"
    if kind == "missing":
        return f"{path} is missing; it has no default. Set it in the recipe or with --set {path}=VALUE."
    if kind == "value_error":
        reason = str(context.get("error", detail["msg"]))
        return f"{path}.{reason}" if path else reason
    if path in _KINDS and kind in {"union_tag_invalid", "union_tag_not_found"}:
        return f"{path}: {_wrong_kind(path, context.get('tag'))}"
    if path in _KINDS and isinstance(value, str):
        example = nearest_name(value, _KINDS[path]) or _KINDS[path][0]
        return f"{path} is {shown(value)}; allowed: a section with named fields. Write {path}: {{kind: {example}}}."
    if detail["loc"][:1] == (_ENVIRONMENT,) and len(detail["loc"]) == 3:
        return f"{path} is {shown(value)}; allowed: a text, a number, true or false. Write one of these."
    if kind == "literal_error":
        return f"{path} is {shown(value)}; {wrong_literal(value, str(context.get('expected', '')))}"
    if kind in _SOURCE_TYPE_ERRORS and _is_source(detail["loc"]):
        return f"{path} is {shown(value)}; allowed: a path, a section {{dataset: ID}}, or a list of these."
    return f"{path or 'recipe'} is {shown(value)}; allowed: {allowed_text(kind, context, detail['msg'])}"


def _unknown_field(model: type[BaseModel], location: tuple[int | str, ...]) -> str:
    """Return how a message about an unknown field goes on; a field of another kind of its section is no typo."""
    *section, name = location
    if len(section) == 2 and _is_branch(location, 1):
        kinds = [kind for kind in _KINDS[str(section[0])] if name in _fields_at(model, (section[0], kind))]
        if kinds:
            listed = " and ".join(kinds)
            return (
                f" of {section[0]} {section[1]}; it belongs to {listed}. "
                f"Set {section[0]}.kind to {' or '.join(kinds)}, or remove it."
            )
    return f"; {known_names(str(name), _fields_at(model, tuple(section)))}"


def _wrong_kind(section: str, tag: Any) -> str:
    kinds = _KINDS[section]
    found = "kind is missing" if tag is None else f"kind is {tag}"
    nearest = nearest_name(str(tag), kinds) if tag is not None else None
    hint = f"Did you mean {nearest}?" if nearest else f"Set {section}.kind to one of these."
    return f"{found}; allowed: {', '.join(kinds)}. {hint}"


def wrong_literal(value: Any, expected: str) -> str:
    """Return what a message says of a value that is none of the `expected` ones, as pydantic lists them."""
    names = re.findall(r"'([^']*)'", expected)
    nearest = None
    if isinstance(value, str) and value:
        nearest = nearest_name(value, names) or next((name for name in names if name.startswith(value)), None)
    return f"allowed: {expected}. {f'Did you mean {nearest}?' if nearest else 'Use one of these.'}"


def allowed_text(kind: str, context: dict[str, Any], message: str) -> str:
    """Return what is allowed and what to do, for a type of error of pydantic's with its context and own message."""
    bounds = {
        "greater_than_equal": ("ge", "at least {}. Raise it."),
        "greater_than": ("gt", "more than {}. Raise it."),
        "less_than_equal": ("le", "at most {}. Lower it."),
        "less_than": ("lt", "less than {}. Lower it."),
        "string_pattern_mismatch": ("pattern", "text matching {}. Rename it."),
        "string_too_short": ("min_length", "text of at least {} character. Fill it in or remove the field."),
        "string_too_long": ("max_length", "text of at most {} characters. Shorten it."),
        "too_short": ("min_length", "a list of at least {} entry. Add one or remove the field."),
    }
    if kind in bounds:
        key, text = bounds[kind]
        bound = context.get(key)
        return (
            text.format(bound) if kind != "too_short" or bound == 1 else text.replace("entry", "entries").format(bound)
        )
    types = {
        "int_type": "a whole number, without quotes. Write a number.",
        "int_parsing": "a whole number. Write a number.",
        "int_from_float": "a whole number. Remove the fraction.",
        "bool_type": "true or false, without quotes.",
        "bool_parsing": "true or false.",
        "string_type": "text. Put it in quotes.",
        "dict_type": "a section with named fields.",
        "model_type": "a section with named fields.",
        "model_attributes_type": "a section with named fields.",
        "tuple_type": "a list.",
        "float_parsing": "a number.",
        "float_type": "a number.",
        "finite_number": "a finite number. Write a number.",
        "invalid_key": "text as a field's name. Rename it.",
    }
    return types.get(kind, f"{message}.")


def _dotted(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for index, part in enumerate(location) if not _is_branch(location, index))


def _is_source(location: tuple[int | str, ...]) -> bool:
    is_inside = location[:2] in {("data", "train"), ("data", "validation")}
    return is_inside and (isinstance(location[-1], int) or location[-1].startswith(_SHAPE_PREFIX))


def _is_branch(location: tuple[int | str, ...], index: int) -> bool:
    """Say whether a part of a location is no field but the branch of a union that pydantic took."""
    part = location[index]
    if index == 1 and location[0] in _KINDS:
        return part in _KINDS[str(location[0])]
    if location[0] == _ENVIRONMENT:
        return index == 2
    return isinstance(part, str) and part.startswith(_SHAPE_PREFIX)


def _fields_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Return the field names of the section that a location leads to."""
    models = [model]
    for index, part in enumerate(location):
        if _is_branch(location, index):
            models = [one for one in models if part in _kinds_of(one) or not _kinds_of(one)]
        elif isinstance(part, str):
            fields = [one.model_fields[part] for one in models if part in one.model_fields]
            models = [found for field in fields for found in _models_in(field.annotation)]
    return sorted({name for one in models for name in one.model_fields})


def _kinds_of(model: type[BaseModel]) -> tuple[Any, ...]:
    annotation: Any = model.model_fields["kind"].annotation if "kind" in model.model_fields else None
    return getattr(annotation, "__args__", ())


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for argument in getattr(annotation, "__args__", ()) for found in _models_in(argument)]
