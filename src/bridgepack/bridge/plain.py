"""Converts a ConfigContainer into plain values, as the host saves it, and reads values by dotted path."""

import dataclasses
import enum
import functools
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from bridgepack.records.results import put as put

_SIMPLE = (bool, int, float, str, PurePath)
#: Maximum depth, more than any config of the host; stops cycles.
_MAX_DEPTH = 12


def plain_values(config: Any) -> dict[str, Any]:
    """Return all attributes of a config, including undeclared ones, as nested plain values.

    An object is a mapping with `_target_`, its class; an enum also has `_name_`, its member; functions and types are
    mappings with `_target_` and `_call_: false`. Attributes that begin with `_` are skipped.
    """
    return _object(config, 0)


def value_at(config: Any, path: str) -> Any:
    """Return the value at a dotted path, or None if a section of the path is None or missing."""
    node = config
    for name in path.split("."):
        if isinstance(node, Mapping):
            node = node.get(name)
        else:
            node = getattr(holder_of(node, name) or node, name, None)
    return node


def holder_of(node: Any, name: str) -> Any:
    """Return the object that has a field: the node, or the transformer inside a model that is built from parts."""
    if name.startswith("_"):
        return None
    if _has_field(node, name):
        return node
    inner = getattr(node, "transformer", None)
    return inner if inner is not None and _has_field(inner, name) else None


def _has_field(node: Any, name: str) -> bool:
    return name in fields_of_class(node.__class__) or name in getattr(node, "__dict__", {})


def field_names(node: Any) -> frozenset[str]:
    """Return the settable names of a host object: declared fields, and attributes that its own code adds."""
    names = fields_of_class(node.__class__) | set(getattr(node, "__dict__", {}))
    return frozenset(name for name in names if not name.startswith("_"))


@functools.cache
def fields_of_class(kind: type) -> frozenset[str]:
    """Return the names that an object of a class declares: fields, and properties that can be set."""
    field_names = {field.name for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    settable = {
        name
        for parent in kind.__mro__
        for name, value in vars(parent).items()
        if isinstance(value, property) and value.fset is not None
    }
    return frozenset(field_names | settable)


def _plain(value: Any, depth: int) -> Any:
    if value is None or type(value) in (bool, int, float, str) or isinstance(value, PurePath):
        return value
    if isinstance(value, enum.Enum):
        return {"_target_": _name(type(value)), "_name_": value.name}
    if isinstance(value, _SIMPLE):
        return next(kind(value) for kind in (bool, int, float, str) if isinstance(value, kind))
    if depth > _MAX_DEPTH:
        return repr(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(item, depth + 1) for item in value), key=repr)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _object(value, depth)
    if isinstance(value, type) or callable(value):
        return {"_target_": _name(value), "_call_": False}
    text = repr(value)
    return {"_target_": text if text.startswith("torch.") else _name(type(value)), "_call_": False}


def _object(value: Any, depth: int) -> dict[str, Any]:
    field_names = [field.name for field in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
    names = dict.fromkeys((*field_names, *getattr(value, "__dict__", {})))
    values = {name: _plain(getattr(value, name, None), depth + 1) for name in names if not name.startswith("_")}
    return {"_target_": _name(type(value)), **values}


def _name(value: Any) -> str:
    module, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", type(value).__qualname__)
    return f"{module}.{name}" if module else str(name)
