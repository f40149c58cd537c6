"""Writes settings into a live ConfigContainer; a setting that the host would ignore silently is an error."""

import copy
import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from bridgepack.bridge.plain import field_names, holder_of
from bridgepack.bridge.shipped import PRECISIONS, import_host, named_precision
from bridgepack.bridge.wiring import OVERRIDES, Setting
from bridgepack.bridge.writing.kept import check_is_kept
from bridgepack.bridge.writing.values import dataclass_in, declared_types, host_value
from bridgepack.config.errors import did_you_mean, known_names, shown
from bridgepack.errors import ConfigError

_PRECISION = "mixed_precision"


def assign(config: Any, settings: Iterable[Setting]) -> None:
    """Write settings into a config, in order.

    Raises:
        ConfigError: a path does not exist, a value has the wrong type, or the host would overwrite it.
    """
    written = list(settings)
    for setting in written:
        if setting.path == _PRECISION:
            config.mixed_precision = _precision(setting.value, setting.place)
        else:
            _write(config, setting)
    for setting in written:
        if setting.field.startswith(f"{OVERRIDES}."):
            check_is_kept(config, setting)


def _precision(value: Any, field: str) -> Any:
    if not isinstance(value, str):
        return value
    if named_precision(value) is None:
        known = sorted({name.replace("-", "_") for name in import_host(PRECISIONS).MIXED_PRECISION_RECIPES})
        raise ConfigError(f"{field} is {shown(value)}; {known_names(value, known)}")
    return value


def _write(config: Any, setting: Setting) -> None:
    *sections, leaf = setting.path.split(".")
    node, above = config, ""
    for name in sections:
        node, above = _section(node, name, setting, above), f"{above}{name}."
    if isinstance(node, dict):
        node[leaf] = copy.deepcopy(setting.value)
        return
    holder = holder_of(node, leaf)
    if holder is None:
        raise _unknown(node, leaf, setting)
    setattr(holder, leaf, _converted(holder, leaf, setting))


def _converted(holder: Any, name: str, setting: Setting) -> Any:
    """Return a setting's value in the declared type; None is allowed if it is the field's value or default.

    An empty section does not change an existing one.
    """
    value = copy.deepcopy(setting.value)
    if value == {} and getattr(holder, name) is not None:
        return getattr(holder, name)
    if value is None and (getattr(holder, name) is None or getattr(type(holder), name, ...) is None):
        return None
    if isinstance(value, Mapping) and "_target_" not in value and isinstance(getattr(holder, name), dict):
        value = {**getattr(holder, name), **value}
    annotation = declared_types(type(holder)).get(name, Any)
    if value is None and setting.origin == "derived":
        return None
    return host_value(value, annotation, field=setting.place)


def _section(node: Any, name: str, setting: Setting, above: str) -> Any:
    """Return the object at a field; if it is None, it is created from the class that the host declares."""
    if isinstance(node, dict):
        return node.setdefault(name, {})
    holder = holder_of(node, name)
    if holder is None:
        raise _unknown(node, name, setting)
    found = getattr(holder, name)
    if above + name == _PRECISION and isinstance(found, str):
        found = named_precision(found)
    if found is None:
        found = _made(holder, name, setting)
    setattr(holder, name, found)
    if not isinstance(found, dict) and not dataclasses.is_dataclass(found) and not hasattr(found, "__dict__"):
        raise ConfigError(
            f"{setting.place} lies below {above}{name}, a plain value, {shown(found)}. Set the value as a whole."
        )
    return found


def _made(holder: Any, name: str, setting: Setting) -> Any:
    annotation = declared_types(type(holder)).get(name, Any)
    kind = dataclass_in(annotation)
    if kind is None or inspect.isabstract(kind):
        if "dict" in str(annotation).lower():
            return {}
        raise ConfigError(
            f"{setting.place} lies below {name}, which is null in this {type(holder).__name__}. Set {name} first."
        )
    required = [
        field.name
        for field in dataclasses.fields(kind)
        if field.init and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    leaf = setting.path.rpartition(".")[2]
    if set(required) - {leaf}:
        raise ConfigError(
            f"{setting.place} lies below {name}, which is null in this {type(holder).__name__} and needs "
            f"{', '.join(required)}. Take a base recipe that has it."
        )
    return kind(**dict.fromkeys(required, setting.value))


def _unknown(node: Any, name: str, setting: Setting) -> ConfigError:
    known = sorted(field_names(node))
    hint = did_you_mean(name, known, f"It has: {', '.join(known[:20])}.")
    return ConfigError(f"{setting.place}: {type(node).__name__} has no field {shown(name)}. {hint}")
