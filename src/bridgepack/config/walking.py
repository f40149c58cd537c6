"""Maps an error location of pydantic to the field it means."""

import types
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAliasType, Union, get_args, get_origin

from pydantic import BaseModel

from bridgepack.config.section import meanings_of

#: Prefix of location parts that select one type of a source; see `config.recipe.sources`.
SHAPE_PREFIX = "as "


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A field of a file."""

    path: str  #: dotted path, without union branches
    kind: str  #: kind of the section that contains it, if several kinds are possible; else ""
    #: kind -> its fields, for every possible kind
    fields_of_kinds: Mapping[str, Collection[str]]
    known: tuple[str, ...]  #: names of all fields in its section
    meaning: str  #: first sentence of its docstring, or ""
    types: tuple[Any, ...]  #: allowed types


def walk(model: type[BaseModel], location: tuple[int | str, ...]) -> Place:
    """Return the field at a location, a path of fields, indices, keys, kinds and union branches."""
    parts: list[str] = []
    here: tuple[Any, ...] = (model,)
    known: tuple[str, ...] = ()
    meaning, kind, chosen = "", "", ""
    fields_of_kinds: dict[str, Collection[str]] = {}
    for part in location:
        sections = [one for one in here if _is_model(one) and isinstance(part, str)]
        branch = [one for one in sections if part in _kinds_of(one)]
        if branch and not chosen:
            fields_of_kinds = {kind: one.model_fields for one in sections for kind in _kinds_of(one)}
            chosen, here = str(part), tuple(branch)
            continue
        if _is_no_field(part, here):
            continue
        parts.append(str(part))
        kind, chosen = chosen, ""
        known = tuple(sorted({name for one in sections for name in one.model_fields}))
        owners = [one for one in sections if part in one.model_fields]
        meaning = meanings_of(owners[0]).get(str(part), "").partition(". ")[0] if owners else ""
        found = [kind for one in owners for kind in alternatives(one.model_fields[str(part)].annotation)]
        here = tuple(found) if sections else tuple(kind for one in here for kind in _inside(one))
    return Place(
        path=".".join(parts),
        kind=kind,
        fields_of_kinds=fields_of_kinds if kind else {},
        known=known,
        meaning=meaning,
        types=here,
    )


def _is_no_field(part: int | str, here: tuple[Any, ...]) -> bool:
    """Return whether a location part names a union branch or marks a mapping key."""
    if isinstance(part, int) or any(get_origin(one) is dict for one in here):
        return part == "[key]"
    return part.startswith(SHAPE_PREFIX) or not any(_is_model(one) for one in here)


def kinds_at(place: Place) -> tuple[str, ...]:
    """Return the section kinds allowed at a place; empty if only one type is allowed."""
    return tuple(kind for one in place.types if _is_model(one) for kind in _kinds_of(one))


def alternatives(annotation: Any) -> Iterator[Any]:
    """Yield the types that an annotation allows, without None and `Annotated` metadata."""
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
