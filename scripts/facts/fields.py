"""The declared types of the host's config classes, and its kinds of mixed precision."""

import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

import torch

from bridgepack.bridge.imports import import_by_name, import_host
from bridgepack.bridge.plain import fields_of_class, plain_values
from bridgepack.bridge.shipped import PRECISIONS
from bridgepack.bridge.writing.values import declared_types
from bridgepack.host.facts import CONTAINER

_LISTS = (list, tuple, set, frozenset)
_PLAIN = {bool: "bool", int: "int", float: "float", str: "str", dict: "dict", types.NoneType: "null"}


def host_fields(bases: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the file holds.

    Args:
        bases: what `host_bases` returns.
    """
    names = {CONTAINER, *bases["classes"], *bases["parts"].values(), *_classes_in(bases)}
    kinds = {name: _class_named(name) for name in sorted(names)}
    precisions = {name: plain_values(make()) for name, make in sorted(_registered().items())}
    usual = precisions["bf16_mixed"]
    return {
        "host": import_host().__version__.partition("+")[0],
        "types": _types(kinds.values()),
        "parents": {name: _parents(kind) for name, kind in kinds.items()},
        "required": {name: found for name, kind in kinds.items() if (found := _required(kind))},
        "sections": dict(_section_defaults(kinds[CONTAINER])),
        "dtypes": sorted(name for name, value in vars(torch).items() if isinstance(value, torch.dtype)),
        "precision": usual,
        "precisions": {
            name: {field: value for field, value in values.items() if usual.get(field, ...) != value}
            for name, values in precisions.items()
        },
    }


def type_of(annotation: Any) -> Any:
    """Return a declared type as plain values, as `host.fields` reads them."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any or isinstance(annotation, (typing.TypeVar, typing.ForwardRef, str)):
        return "any"
    if origin in (typing.Union, types.UnionType):
        return {"one_of": [type_of(one) for one in arguments]}
    if origin is typing.Literal:
        return {"names": list(arguments)}
    if origin in (typing.Annotated, typing.ClassVar, typing.Final):
        return type_of(arguments[0])
    if origin in _LISTS:
        return {"list": type_of(arguments[0]) if len(set(arguments) - {Ellipsis}) == 1 else "any"}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "dict"
    if annotation is Callable or origin in (Callable, type) or not isinstance(annotation, type):
        return "function"
    return _type_of_class(annotation)


def _type_of_class(kind: type) -> Any:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if issubclass(kind, enum.Enum):
        return {"member_of": f"{kind.__module__}.{kind.__qualname__}", "names": list(kind.__members__)}
    if issubclass(kind, PurePath):
        return "path"
    if kind.__module__ == "torch" and kind.__name__ == "dtype":
        return "dtype"
    if kind in _LISTS:
        return {"list": "any"}
    if kind is object:
        return "any"
    return {"object": f"{kind.__module__}.{kind.__qualname__}"}


def _types(kinds: Iterable[type]) -> dict[str, dict[str, Any]]:
    """Return class -> field -> type, of every class and its parents, where a parent does not say the same."""
    found: dict[str, dict[str, Any]] = {}
    for kind in dict.fromkeys(parent for one in kinds for parent in reversed(one.__mro__)):
        inherited: dict[str, Any] = {}
        for parent in reversed(kind.__mro__[1:]):
            inherited |= found.get(_name(parent), {})
        own = {name: value for name, value in _own_types(kind) if inherited.get(name, ...) != value}
        if own:
            found[_name(kind)] = own
    return found


def _own_types(kind: type) -> Iterator[tuple[str, Any]]:
    declared = declared_types(kind)
    for name in sorted(name for name in fields_of_class(kind) if not name.startswith("_")):
        said = type_of(declared.get(name, Any))
        may_be_null = getattr(kind, name, ...) is None and "null" not in str(said) and said != "any"
        yield name, {"one_of": [said, "null"]} if may_be_null else said


def _parents(kind: type) -> list[str]:
    return [_name(parent) for parent in kind.__mro__[1:] if parent is not object]


def _section_defaults(container: type) -> Iterator[tuple[str, Any]]:
    """Yield (section, plain values) of the sections that the host makes where a saved config has none."""
    for field in dataclasses.fields(container):
        if not field.name.startswith("_") and field.default_factory is not dataclasses.MISSING:
            made = field.default_factory()
            yield field.name, plain_values(made) if dataclasses.is_dataclass(made) else made


def _required(kind: type) -> list[str]:
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return [
        field.name
        for field in fields
        if field.init and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _class_named(name: str) -> type:
    module, _, attribute = name.rpartition(".")
    return getattr(import_by_name(module), attribute)  # type: ignore[no-any-return]


def _classes_in(value: Any) -> Iterator[str]:
    """Yield the class of every object in nested plain values."""
    if isinstance(value, Mapping):
        if "_target_" in value and value.get("_call_", True) and "_name_" not in value:
            yield value["_target_"]
        for item in value.values():
            yield from _classes_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from _classes_in(item)


def _registered() -> Mapping[str, Any]:
    registered: Mapping[str, Any] = import_host(PRECISIONS).MIXED_PRECISION_RECIPES
    return registered
