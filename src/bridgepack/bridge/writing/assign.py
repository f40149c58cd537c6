"""Writes settings into a live ConfigContainer; a setting that the host would ignore or overwrite is an error."""

import copy
import dataclasses
import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bridgepack.bridge.imports import import_host
from bridgepack.bridge.plain import field_names, holder_of, value_at
from bridgepack.bridge.shipped import PRECISIONS, named_precision
from bridgepack.bridge.wiring import OVERRIDES, Setting
from bridgepack.bridge.writing.values import dataclass_in, declared_types, host_value
from bridgepack.config.errors import did_you_mean, known_names, quote
from bridgepack.errors import ConfigError
from bridgepack.host.overwritten import DECIDERS, DEPENDENT, WORKED_OUT

_PRECISION = "mixed_precision"


def assign(config: Any, settings: Iterable[Setting]) -> None:
    """Write settings into a config, in order.

    Raises:
        ConfigError: a path does not exist, a value has the wrong type, or the host would overwrite it.
    """
    in_order = list(settings)
    values_by_path = {setting.path: setting.value for setting in in_order}
    for setting in in_order:
        if setting.path == _PRECISION and setting.value == {}:
            continue
        if setting.path == _PRECISION:
            config.mixed_precision = _precision(setting.value, setting.place)
        else:
            _write(config, setting, values_by_path)
    for setting in in_order:
        if setting.field.startswith(f"{OVERRIDES}."):
            check_is_kept(config, setting)


def _precision(value: Any, field: str) -> Any:
    if not isinstance(value, str):
        return value
    if named_precision(value) is None:
        names = sorted({name.replace("-", "_") for name in import_host(PRECISIONS).MIXED_PRECISION_RECIPES})
        raise ConfigError(f"{field} is {quote(value)}; {known_names(value, names)}", field=field)
    return value


def _write(config: Any, setting: Setting, values_by_path: Mapping[str, Any]) -> None:
    *sections, leaf = setting.path.split(".")
    node, above = config, ""
    for name in sections:
        node, above = _section(node, name, setting, above, values_by_path), f"{above}{name}."
    if isinstance(node, dict):
        node[leaf] = copy.deepcopy(setting.value)
        return
    holder = holder_of(node, leaf)
    if holder is None:
        raise _no_such_field(node, leaf, setting)
    setattr(holder, leaf, _convert(holder, leaf, setting))


def _convert(holder: Any, name: str, setting: Setting) -> Any:
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


def _section(node: Any, name: str, setting: Setting, above: str, values_by_path: Mapping[str, Any]) -> Any:
    """Return the object at a field; if it is None, it is created from the class that the host declares.

    `values_by_path` are all values that are written: a new object takes the fields from them that it needs.
    """
    if isinstance(node, dict):
        return node.setdefault(name, {})
    holder = holder_of(node, name)
    if holder is None:
        raise _no_such_field(node, name, setting)
    section = getattr(holder, name)
    if above + name == _PRECISION and isinstance(section, str):
        section = named_precision(section)
    if section is None:
        section = _new_object(
            holder,
            name,
            setting,
            {path.removeprefix(f"{above}{name}."): values_by_path[path] for path in values_by_path},
        )
    setattr(holder, name, section)
    if not isinstance(section, dict) and not dataclasses.is_dataclass(section) and not hasattr(section, "__dict__"):
        raise ConfigError(
            f"{setting.place} lies below {above}{name}, a plain value, {quote(section)}. Set the value as a whole.",
            field=setting.place,
        )
    return section


def _new_object(holder: Any, name: str, setting: Setting, values_by_path: Mapping[str, Any]) -> Any:
    annotation = declared_types(type(holder)).get(name, Any)
    kind = dataclass_in(annotation)
    if kind is None or inspect.isabstract(kind):
        if "dict" in str(annotation).lower():
            return {}
        raise ConfigError(
            f"{setting.place} lies below {name}, which is null in this {type(holder).__name__}. Set {name} first.",
            field=setting.place,
        )
    required_fields = [
        field.name
        for field in dataclasses.fields(kind)
        if field.init and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    ]
    if not values_by_path.keys() >= set(required_fields):
        raise ConfigError(
            f"{setting.place} lies below {name}, which is null in this {type(holder).__name__} and needs "
            f"{', '.join(required_fields)}. Set it, too, or take a base recipe that has {name}.",
            field=setting.place,
        )
    return kind(**{field: values_by_path[field] for field in required_fields})


def _no_such_field(node: Any, name: str, setting: Setting) -> ConfigError:
    names = sorted(field_names(node))
    hint = did_you_mean(name, names, f"It has: {', '.join(names[:20])}.")
    text = f"{setting.place}: {type(node).__name__} has no field {quote(name)}. {hint}"
    return ConfigError(text, field=setting.place)


def check_is_kept(config: Any, setting: Setting) -> None:
    """Check that the host neither overwrites a setting when the run starts nor ignores it.

    Raises:
        ConfigError: it does; the message names the setting to use instead.
    """
    path, value = setting.path, value_at(config, setting.path)
    statement = f"{setting.place} is {quote(setting.value)}"
    if path in WORKED_OUT:
        instead = " and ".join(WORKED_OUT[path])
        raise ConfigError(f"{statement}; Megatron-Bridge computes it. Set {instead} instead.", field=setting.place)
    if value and _has_no_effect(config, path):
        switch, without_effect = DEPENDENT[path]
        text = f"{statement}; it has no effect while {switch} is {without_effect}. Remove it, or change {switch}."
        raise ConfigError(text, field=setting.place)
    for decider, final_value in _iter_deciders(config, path):
        if final_value != value:
            name = path.rpartition(".")[2]
            text = f"{statement}; {decider} writes over it when the run starts. Set {decider}.{name} instead."
            raise ConfigError(text, field=setting.place)
    _check_is_not_worked_out_again(config, setting, statement)


def is_ignored(config: Any, path: str) -> bool:
    """Return whether the host ignores, recomputes or overwrites a setting of this config."""
    is_worked_out = path in WORKED_OUT and path not in DEPENDENT
    return is_worked_out or _has_no_effect(config, path) or any(True for _ in _iter_deciders(config, path))


def _has_no_effect(config: Any, path: str) -> bool:
    switch, without_effect = DEPENDENT.get(path, ("", None))
    return bool(switch) and value_at(config, switch) == without_effect


def _iter_deciders(config: Any, path: str) -> Iterator[tuple[str, Any]]:
    section, _, name = path.partition(".")
    for decider, sections in DECIDERS.items():
        source = getattr(config, decider)
        source = named_precision(source) if isinstance(source, str) else source
        if section in sections and source is not None and name in field_names(source):
            yield decider, getattr(source, name)


def _check_is_not_worked_out_again(config: Any, setting: Setting, statement: str) -> None:
    """Raise `ConfigError` if the class of a section recomputes a field when the run starts.

    Source: megatron/bridge/training/config.py of 0.6.2, validate(): it runs `__post_init__` again if there is no
    `finalize`.
    """
    section, _, name = setting.path.partition(".")
    node: Any = getattr(config, section, None)
    if name not in field_names(node) or not hasattr(node, "__post_init__") or hasattr(node, "finalize"):
        return
    again, kind = copy.deepcopy(node), type(node).__name__
    try:
        again.__post_init__()
    except (AssertionError, TypeError, ValueError) as error:
        text = f"{statement}; {kind} refuses it: {error} Set what it asks for, or remove it."
        raise ConfigError(text, field=setting.place) from error
    if getattr(again, name) != getattr(node, name):
        raise ConfigError(
            f"{statement}; {kind} sets it to {quote(getattr(again, name))} by itself. Remove it, and set what {kind} "
            "takes it from.",
            field=setting.place,
        )
