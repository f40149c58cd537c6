"""Converts plain values into the declared types of the host's fields: enums, dtypes, paths, nested objects."""

import dataclasses
import enum
import sys
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path, PurePath
from typing import Any

from bridgepack.config.errors import nearest_name, quote
from bridgepack.errors import ConfigError

_LISTS = (list, tuple, set, frozenset)
_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", dict: "a mapping"}


class _NoFit(Exception):
    """A value has the wrong type; the message is the allowed values."""


def host_value(value: Any, annotation: Any, *, field: str) -> Any:
    """Return a plain value in the declared type: `"flash"` for an enum of kernels -> its member `flash`.

    Args:
        value: plain value, or a value of that type.
        annotation: the declared type; `Any` accepts everything.
        field: field in which the user set it, for the message.

    Raises:
        ConfigError: the value does not fit the type.
    """
    try:
        return _fit(value, annotation)
    except _NoFit as reason:
        text = f"{field} is {quote(value)}; allowed: {reason}. Use one of these."
        raise ConfigError(text, field=field) from None


def _declared_types(kind: type) -> Mapping[str, Any]:
    types_by_field: dict[str, Any] = {}
    for parent in reversed(kind.__mro__):
        namespace = vars(sys.modules[parent.__module__]) if parent.__module__ in sys.modules else {}
        for name, annotation in vars(parent).get("__annotations__", {}).items():
            types_by_field[name] = _resolve(annotation, namespace)
    return types_by_field


#: Class -> the names of its fields -> declared types; one that cannot be resolved is `Any`.
declared_types: Callable[[type], Mapping[str, Any]] = cache(_declared_types)


def _resolve(annotation: Any, namespace: Mapping[str, Any]) -> Any:
    if not isinstance(annotation, str):
        return annotation
    holder = types.SimpleNamespace(__annotations__={"value": annotation})
    try:
        return typing.get_type_hints(holder, globalns=dict(namespace))["value"]
    except (NameError, AttributeError, TypeError, SyntaxError):
        return Any


def dataclass_in(annotation: Any) -> type | None:
    """Return the only dataclass in an annotation, e.g. in `CommOverlapConfig | None`, or None."""
    options = typing.get_args(annotation) or (annotation,)
    kinds = [option for option in options if isinstance(option, type) and dataclasses.is_dataclass(option)]
    return kinds[0] if len(kinds) == 1 else None


def _fit(value: Any, annotation: Any) -> Any:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any or isinstance(annotation, (typing.TypeVar, typing.ForwardRef, str)):
        return value
    if origin in (typing.Union, types.UnionType):
        return _fit_union(value, arguments)
    if origin is typing.Literal:
        return _fit_literal(value, arguments)
    if origin in (typing.Annotated, typing.ClassVar, typing.Final):
        return _fit(value, arguments[0])
    if origin in _LISTS:
        return _fit_list(value, origin, arguments)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _fit_class(value, dict)
    if annotation is Callable or origin in (Callable, type) or not isinstance(annotation, type):
        if value is None or callable(value):
            return value
        raise _NoFit("a function or class, which a recipe cannot hold. Set it on the ConfigContainer in Python")
    return _fit_class(value, annotation)


def _fit_class(value: Any, kind: type) -> Any:
    if isinstance(value, bool) and kind in (int, float):
        raise _NoFit(_NAMES[kind])
    if isinstance(value, kind) or (kind is bool and isinstance(value, int)):
        return value
    if kind in _LISTS and isinstance(value, list):
        return kind(value)  # a tuple without the types of its parts
    if value is None and issubclass(kind, enum.Enum):
        return None  # the host's own recipes set choices to None, whatever is declared
    if issubclass(kind, enum.Enum):
        return _member(value, kind)
    if issubclass(kind, PurePath) and isinstance(value, str):
        return Path(value)
    if (kind is int and isinstance(value, float) and value.is_integer()) or (kind is float and isinstance(value, int)):
        return kind(value)
    if kind.__module__ == "torch" and kind.__name__ == "dtype":
        return _dtype(value, kind)
    if dataclasses.is_dataclass(kind) and isinstance(value, Mapping):
        return _object(value, kind)
    if issubclass(kind, PurePath):
        raise _NoFit("a path")
    raise _NoFit(_NAMES.get(kind, "null" if kind is types.NoneType else f"fields of {kind.__name__}"))


def _fit_literal(value: Any, options: tuple[Any, ...]) -> Any:
    if value is None or any(option == value and type(option) is type(value) for option in options):
        return value
    raise _NoFit(", ".join(str(option) for option in options))


def _fit_union(value: Any, options: tuple[Any, ...]) -> Any:
    if value is None and type(None) in options:
        return None
    reasons = []
    target = value.get("_target_") if isinstance(value, Mapping) else None
    if isinstance(target, str):
        options = tuple(option for option in options if getattr(option, "__name__", "") == target.rpartition(".")[2])
    for option in sorted(options, key=lambda option: type(value) is not option):
        try:
            return _fit(value, option)
        except _NoFit as reason:
            reasons.append(str(reason))
    raise _NoFit(" or ".join(dict.fromkeys(reasons)))


def _fit_list(value: Any, origin: type, arguments: tuple[Any, ...]) -> Any:
    if isinstance(value, str) or not isinstance(value, _LISTS):
        raise _NoFit("a list")
    item = arguments[0] if len(set(arguments) - {Ellipsis}) == 1 else Any
    return origin(_fit(element, item) for element in value)


def _member(value: Any, kind: type[enum.Enum]) -> enum.Enum:
    name = value.get("_name_") if isinstance(value, Mapping) else value
    if isinstance(name, str) and name in kind.__members__:
        return kind[name]
    raise _NoFit(", ".join(kind.__members__))


def _dtype(value: Any, kind: type) -> Any:
    dtype = getattr(sys.modules["torch"], str(value).removeprefix("torch."), None)
    if not isinstance(dtype, kind):
        raise _NoFit("the name of a torch dtype, e.g. bfloat16")
    return dtype


def _object(values: Mapping[str, Any], kind: type) -> Any:
    names, types_by_field = {field.name for field in dataclasses.fields(kind) if field.init}, declared_types(kind)
    values_by_field = {name: value for name, value in values.items() if name != "_target_"}
    for name in values_by_field.keys() - names:
        nearest = nearest_name(name, names)
        raise _NoFit(f"fields of {kind.__name__}: {', '.join(sorted(names))}" + (f" ({nearest}?)" if nearest else ""))
    try:
        return kind(**{name: _fit(value, types_by_field[name]) for name, value in values_by_field.items()})
    except (TypeError, ValueError, AssertionError) as error:
        raise _NoFit(f"what {kind.__name__} takes: {error}") from error
