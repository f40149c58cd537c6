"""Follows a location in pydantic's words through the sections to the field that it means."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAliasType, Union, get_args, get_origin

from pydantic import BaseModel

from bridgepack.config.cluster.executors import EXECUTORS
from bridgepack.config.section import meanings_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A field of a file.

    Attributes:
        path: its dotted path, without the branches of unions.
        executor: kind of the executor whose own field it is, or None.
        known: names of the fields beside it.
        meaning: first sentence of its docstring, or "".
        types: what may stand there.
    """

    path: str
    executor: str | None
    known: tuple[str, ...]
    meaning: str
    types: tuple[Any, ...]


def walk(model: type[BaseModel], location: tuple[int | str, ...]) -> Place:
    """Return the place that a location leads to.

    Args:
        model: what was validated.
        location: fields, indices and keys; between them kinds of sections and names of a union's branches.
    """
    parts: list[str] = []
    here: tuple[Any, ...] = (model,)
    known: tuple[str, ...] = ()
    meaning, executor = "", None
    for index, part in enumerate(location):
        branch = tuple(one for one in here if _is_model(one) and part in _kinds_of(one))
        if branch and not (index and location[index - 1] == "kind"):
            here = branch
            continue
        sections = [one for one in here if _is_model(one)]
        if isinstance(part, str) and not sections and not any(get_origin(one) is dict for one in here):
            continue  # the name of a union's branch
        if part == "[key]":
            continue
        parts.append(str(part))
        known = tuple(sorted({name for one in sections for name in one.model_fields}))
        executor = next((kind for kind, section in EXECUTORS.items() if sections == [section]), None)
        owners = [one for one in sections if part in one.model_fields]
        fields = [one.model_fields[str(part)] for one in owners]
        meaning = " ".join(meanings_of(owners[0]).get(str(part), "").split()).partition(". ")[0] if owners else ""
        found = [kind for field in fields for kind in alternatives(field.annotation)]
        here = tuple(found) if sections else tuple(kind for one in here for kind in _inside(one))
    return Place(path=".".join(parts), executor=executor, known=known, meaning=meaning, types=here)


def kinds_at(place: Place) -> tuple[str, ...]:
    """Return the kinds of the sections that may stand at a place, or none where there is only one shape."""
    return tuple(kind for one in place.types if _is_model(one) for kind in _kinds_of(one))


def alternatives(annotation: Any) -> Iterator[Any]:
    """Yield the types that an annotation allows, without None and without the marks of `Annotated`."""
    if isinstance(annotation, TypeAliasType):
        yield from alternatives(annotation.__value__)
    elif get_origin(annotation) is Annotated:
        yield from alternatives(get_args(annotation)[0])
    elif get_origin(annotation) in {Union, types.UnionType}:
        for argument in get_args(annotation):
            yield from alternatives(argument)
    elif annotation is not types.NoneType:
        yield annotation


def _inside(one: Any) -> Iterator[Any]:
    arguments = get_args(one)
    if get_origin(one) in {dict, Mapping}:
        yield from alternatives(arguments[1])
    elif get_origin(one) in {tuple, list}:
        yield from alternatives(arguments[0])


def _is_model(one: Any) -> bool:
    return isinstance(one, type) and issubclass(one, BaseModel)


def _kinds_of(model: type[BaseModel]) -> tuple[Any, ...]:
    annotation: Any = model.model_fields["kind"].annotation if "kind" in model.model_fields else None
    return get_args(annotation) if get_origin(annotation) is Literal else ()
