"""Fields of the host's configs by dotted path: which there are, and what they hold."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bridgepack.bridge.shipped import import_host
from bridgepack.bridge.wiring import OVERRIDES, Setting

#: Module with the registered kinds of mixed precision.
PRECISIONS = "megatron.bridge.training.mixed_precision"
#: Fields of mixed precision that tell number formats apart.
_FORMATS = ("fp32", "fp16", "bf16", "fp8", "fp8_recipe", "fp4", "fp4_recipe")


def field_of(setting: Setting) -> str:
    """Return what the user would write to decide a setting: a field of the recipe, or an override."""
    return setting.field or f"{OVERRIDES}.{setting.path}"


def value_at(config: Any, path: str) -> Any:
    """Return the value at a dotted path; None where a section on the way is None or missing."""
    node = config
    for name in path.split("."):
        if isinstance(node, Mapping):
            node = node.get(name)
        else:
            node = getattr(holder_of(node, name) or node, name, None)
    return node


def named_precision(name: str) -> Any:
    """Return the mixed precision that Megatron-Bridge has registered under a name; None where there is none."""
    registered = import_host(PRECISIONS).MIXED_PRECISION_RECIPES
    return registered[name]() if name in registered else None


def has_formats_of(precision: Any, other: Any) -> bool:
    """Say whether two kinds of mixed precision compute in the same number formats."""
    return all(getattr(precision, name) == getattr(other, name) for name in _FORMATS)


def holder_of(node: Any, name: str) -> Any:
    """Return the object that has a field: the node, or the transformer inside a model that is built from parts."""
    if name.startswith("_"):
        return None
    if name in field_names(node):
        return node
    inner = getattr(node, "transformer", None)
    return inner if inner is not None and name in field_names(inner) else None


def field_names(node: Any) -> frozenset[str]:
    """Return the names that can be set on an object of the host: declared fields, and what its own code has added."""
    declared = {field.name for field in dataclasses.fields(node)} if dataclasses.is_dataclass(node) else set()
    settable = {
        name
        for parent in type(node).__mro__
        for name, value in vars(parent).items()
        if isinstance(value, property) and value.fset is not None
    }
    names = declared | settable | set(getattr(node, "__dict__", {}))
    return frozenset(name for name in names if not name.startswith("_"))
