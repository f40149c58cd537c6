"""Turns pydantic's errors about a cluster file into bridgepack's: field, value found, what is allowed, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from bridgepack.config.cluster.executors import EXECUTORS
from bridgepack.config.cluster.walking import Place, kinds_at, walk
from bridgepack.config.errors import allowed_text, known_names, nearest_name, shown, wrong_literal
from bridgepack.errors import ConfigError

_EXECUTOR = "executor"
_TAG_ERRORS = frozenset({"union_tag_invalid", "union_tag_not_found"})
_SECTION_ERRORS = frozenset({"model_type", "model_attributes_type", "dict_type"})


@dataclass(frozen=True, kw_only=True, slots=True)
class _Wrong:
    """One wrong field: where it is, what pydantic says, and how it goes on in a message."""

    place: Place
    path: str
    detail: ErrorDetails


def cluster_error(error: ValidationError, model: type[BaseModel], *, place: str = _EXECUTOR) -> ConfigError:
    """Return one ConfigError with a line for every wrong field.

    Args:
        error: pydantic's.
        model: what was validated.
        place: where the executor stands in the file.
    """
    found: dict[str, list[_Wrong]] = {}
    for detail in error.errors(include_url=False):
        where = walk(model, detail["loc"])
        path = place + where.path[len(_EXECUTOR) :] if where.path.startswith(_EXECUTOR) else where.path
        found.setdefault(path, []).append(_Wrong(place=where, path=path, detail=detail))
    lines = [_line(wrong) for wrong in found.values()]
    if len(lines) == 1:
        return ConfigError(lines[0])
    return ConfigError(f"{len(lines)} fields are wrong:\n" + "\n".join(f"  {line}" for line in lines))


def _line(wrong: list[_Wrong]) -> str:
    """Return the line of one field; several errors of it are the shapes that it may have."""
    first, detail = wrong[0], wrong[0].detail
    path, value, kind, context = first.path, detail["input"], detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_field(first)
    if kind == "missing":
        return _missing(first)
    if kind == "value_error":
        reason = str(context.get("error", detail["msg"]))
        return f"{path}{reason}" if reason.startswith(" ") or not path else f"{path}.{reason}"
    kinds = kinds_at(first.place)
    if kind in _TAG_ERRORS | _SECTION_ERRORS and kinds:
        return _wrong_kind(path, value, kinds)
    if kind == "literal_error":
        return f"{path} is {shown(value)}; {wrong_literal(value, str(context.get('expected', '')))}"
    allowed = list(dict.fromkeys(_shape(one.detail) for one in wrong))
    if len(allowed) > 1:
        return f"{path} is {shown(value)}; allowed: {' or '.join(allowed)}. Write one of these."
    return f"{path or 'cluster'} is {shown(value)}; allowed: {allowed_text(kind, context, detail['msg'])}"


def _shape(detail: ErrorDetails) -> str:
    text = allowed_text(detail["type"], detail.get("ctx", {}), detail["msg"])
    return text.partition(". ")[0].removesuffix(".")


def _unknown_field(wrong: _Wrong) -> str:
    name = str(wrong.detail["loc"][-1])
    known = sorted(wrong.place.known)
    if wrong.place.executor is None:
        return f"{wrong.path} is not a field; {known_names(name, known)}"
    kind = wrong.place.executor
    others = [other for other, section in EXECUTORS.items() if name in section.model_fields]
    if not others:
        return f"{wrong.path} is not a field of {kind}; {known_names(name, known)}"
    nearest = nearest_name(name, known)
    hint = f"The nearest that {kind} has is {nearest}." if nearest else "Remove it."
    listed = " and ".join(filter(None, [", ".join(others[:-1]), others[-1]]))
    return (
        f"{wrong.path} is not a field of {kind}; {listed} {'has' if len(others) == 1 else 'have'} it. {hint} "
        f"{kind} has: {', '.join(known)}."
    )


def _missing(wrong: _Wrong) -> str:
    text = f"{wrong.path} is missing"
    if wrong.place.executor is not None:
        text += f"; a {wrong.place.executor} executor needs it"
    meaning = f": {wrong.place.meaning}" if wrong.place.meaning else ""
    return f"{text}{meaning.rstrip('.')}. Set it in the cluster file or with --cluster-set {wrong.path}=VALUE."


def _wrong_kind(path: str, value: Any, kinds: tuple[str, ...]) -> str:
    if not isinstance(value, Mapping):
        example = (nearest_name(value, kinds) if isinstance(value, str) else None) or kinds[0]
        return f"{path} is {shown(value)}; allowed: a section with named fields. Write {path}: {{kind: {example}}}."
    tag = value.get("kind")
    found = "is missing" if tag is None else f"is {shown(tag)}"
    nearest = nearest_name(str(tag), kinds) if tag is not None else None
    hint = f"Did you mean {nearest}?" if nearest else "Use one of these."
    return f"{path}.kind {found}; allowed: {', '.join(kinds)}. {hint}"
