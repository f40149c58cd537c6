"""Compares two ConfigContainers, setting by setting."""

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from bridgepack.bridge.plain import plain_values
from bridgepack.bridge.shipped import named_precision

#: Marks a missing value.
MISSING = object()


def differences(config: Any, other: Any) -> dict[str, tuple[Any, Any]]:
    """Return dotted path -> (value in the first, value in the second) of differences; `MISSING` for a missing value.

    Values are plain; an enum's member equals its name, a path its text, and a registered name of mixed precision the
    object that it names.
    """
    return plain_differences(_comparable(config), _comparable(other))


def plain_differences(values: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the differences of plain values, as `differences`."""
    return dict(_differences(values, other, ""))


def is_representable(value: Any) -> bool:
    """Return whether a recipe can contain a plain value: not a function, class or object of the host."""
    if isinstance(value, Mapping):
        return all(not name.startswith("_") and is_representable(item) for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(is_representable(item) for item in value)
    return value is not MISSING


def without_classes(value: Any) -> Any:
    """Return a plain object as a mapping of its set fields, without class names."""
    if not isinstance(value, Mapping):
        return value
    return {name: without_classes(item) for name, item in value.items() if name != "_target_" and item is not None}


def as_written(value: Any) -> Any:
    """Return a plain value as written in a recipe: an enum member as its name, a path as text."""
    if isinstance(value, Mapping):
        if "_name_" in value:
            return value["_name_"]
        if str(value.get("_target_", "")).startswith("torch.") and value.get("_call_") is False:
            return str(value["_target_"]).removeprefix("torch.")
        return {name: as_written(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_written(item) for item in value]
    return str(value) if isinstance(value, PurePath) else value


def _comparable(config: Any) -> dict[str, Any]:
    values = plain_values(config)
    if isinstance(config.mixed_precision, str):
        values["mixed_precision"] = plain_values(named_precision(config.mixed_precision))
    return values


def _differences(one: Any, other: Any, path: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
    if _is_object(one) and _is_object(other) and _class(one) == _class(other):
        for name in dict.fromkeys((*one, *other)):
            if name == "_target_":
                continue
            below = f"{path}.{name}" if path else name
            yield from _differences(one.get(name, MISSING), other.get(name, MISSING), below)
    elif as_written(one) != as_written(other):
        yield path, (one, other)


def _class(value: Mapping[str, Any]) -> str:
    """Return the name of a class without its module: the host has subclasses of the same name."""
    return str(value.get("_target_", "")).rpartition(".")[2]


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping) and "_name_" not in value and "_call_" not in value
