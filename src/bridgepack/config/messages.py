"""Turns pydantic's errors into bridgepack's: field, value found, what is allowed, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from bridgepack.errors import ConfigError

_KINDS = frozenset({"chat", "prompt_completion", "tokenized"})
_PREPROCESSING = "preprocessing"
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
    return ConfigError(f"{path}: there is no section {wrong!r}; {_known_names(leaf, known)}")


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most like `name`, or None when none is close."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None


def shown(value: Any) -> str:
    """Return a value as an error message shows it: its repr, cut at 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _known_names(name: str, known: list[str]) -> str:
    if not known:
        return "it would lie below a plain value. Set the value as a whole."
    nearest = nearest_name(name, known)
    hint = f"Did you mean {nearest}?" if nearest else "Use one of these."
    return f"allowed: {', '.join(known)}. {hint}"


def _is_echo(detail: ErrorDetails) -> bool:
    """Say whether a list is called too short only because its entries are wrong."""
    return detail["type"] == "too_short" and bool(detail["input"])


def _line(detail: ErrorDetails, model: type[BaseModel]) -> str:
    path = _dotted(detail["loc"])
    value, kind, context = detail["input"], detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        fields = _fields_at(model, detail["loc"][:-1])
        return f"{path} is not a field; {_known_names(str(detail['loc'][-1]), fields)}"
    if kind == "missing":
        return f"{path} is missing; it has no default. Set it in the recipe or with --set {path}=VALUE."
    if kind == "value_error":
        reason = str(context.get("error", detail["msg"]))
        return f"{path}.{reason}" if path else reason
    if path == _PREPROCESSING and kind in {"union_tag_invalid", "union_tag_not_found"}:
        found = f"kind is {context.get('tag')}" if kind == "union_tag_invalid" else "kind is missing"
        return f"{path}: {found}; allowed: chat, prompt_completion, tokenized. Set {path}.kind to one of these."
    if kind in _SOURCE_TYPE_ERRORS and _is_source(detail["loc"]):
        return f"{path} is {shown(value)}; allowed: a path, a section {{dataset: ID}}, or a list of these."
    return f"{path or 'recipe'} is {shown(value)}; allowed: {_allowed(kind, context, detail['msg'])}"


def _allowed(kind: str, context: dict[str, Any], message: str) -> str:
    bounds = {
        "greater_than_equal": ("ge", "at least {}. Raise it."),
        "greater_than": ("gt", "more than {}. Raise it."),
        "less_than_equal": ("le", "at most {}. Lower it."),
        "less_than": ("lt", "less than {}. Lower it."),
        "string_pattern_mismatch": ("pattern", "text matching {}. Rename it."),
        "literal_error": ("expected", "{}. Use one of these."),
        "string_too_short": ("min_length", "text of at least {} character. Fill it in or remove the field."),
        "string_too_long": ("max_length", "text of at most {} characters. Shorten it."),
        "too_short": ("min_length", "a list of at least {} entry. Add one or remove the field."),
    }
    if kind in bounds:
        key, text = bounds[kind]
        return text.format(context.get(key))
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
    if location[:index] == (_PREPROCESSING,):
        return part in _KINDS
    return isinstance(part, str) and part.startswith(_SHAPE_PREFIX)


def _fields_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Return the field names of the section that a location leads to."""
    models = [model]
    for index, part in enumerate(location):
        if _is_branch(location, index):
            models = [one for one in models if _kind_of(one) in {part, None}]
        elif isinstance(part, str):
            fields = [one.model_fields[part] for one in models if part in one.model_fields]
            models = [found for field in fields for found in _models_in(field.annotation)]
    return sorted({name for one in models for name in one.model_fields})


def _kind_of(model: type[BaseModel]) -> str | None:
    annotation: Any = model.model_fields["kind"].annotation if "kind" in model.model_fields else None
    arguments = getattr(annotation, "__args__", ())
    return str(arguments[0]) if arguments else None


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for argument in getattr(annotation, "__args__", ()) for found in _models_in(argument)]
