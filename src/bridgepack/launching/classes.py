"""Finds nemo-run's executor classes, and makes objects of them from the fields of a cluster file."""

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any, get_args, get_origin, get_type_hints

import nemo_run as run

from bridgepack.config.errors import did_you_mean
from bridgepack.errors import ConfigError

#: Executor fields that nemo-run sets itself.
_SET_BY_NEMO_RUN = frozenset({"experiment_id", "job_dir"})


def find_executor(name: str, place: str = "executor") -> type[Any]:
    """Return an executor's class by its name in nemo_run or its dotted path; `place` is for messages.

    Raises:
        ConfigError: it does not exist, or cannot be imported.
    """
    cls = _find(name, place)
    if not (isinstance(cls, type) and issubclass(cls, run.Executor) and dataclasses.is_dataclass(cls)):
        raise ConfigError(f"{place}.class is {name}; allowed: a dataclass that inherits nemo_run.Executor. Correct it.")
    return cls


def object_of(cls: type[Any], values: Mapping[str, Any], place: str = "executor") -> Any:
    """Return an object of a class; a section where the class takes an object of nemo-run becomes that object.

    `place` is the dotted path of the values in the cluster file.

    Raises:
        ConfigError: the class does not take the values; repeats what Python says.
    """
    hints = get_type_hints(cls)
    fields = {name: _part(hints.get(name), value, f"{place}.{name}") for name, value in values.items()}
    try:
        return cls(**fields)
    except TypeError as error:
        raise ConfigError(f"{place} has fields that {cls.__name__} does not take: {error}. Correct them.") from error


def field_names(cls: type[Any]) -> frozenset[str]:
    """Return the fields of a dataclass that a cluster file can set."""
    return frozenset(field.name for field in _fields(cls))


def _find(name: str, place: str) -> Any:
    path, _, last = name.rpartition(".")
    if path:
        try:
            module = importlib.import_module(path)
        except ImportError as error:
            raise ConfigError(f"{place}.class is {name}; {error}. Install it, or correct it.") from None
    else:
        module = run
    if hasattr(module, last):
        return getattr(module, last)
    hint = did_you_mean(last, [member for member in dir(module) if member.endswith("Executor")], "Correct it.")
    raise ConfigError(f"{place}.class is {name}; {path or 'nemo_run'} has no {last}. {hint}")


def _part(hint: Any, value: Any, place: str) -> Any:
    """Return the object that a section stands for; its `class` names another class than the first of the hint."""
    classes = _dataclasses_in(hint)
    if classes and isinstance(value, list):
        return [_part(hint, item, f"{place}.{index}") for index, item in enumerate(value)]
    if not classes or not isinstance(value, Mapping):
        return value
    fields = dict(value)
    name = fields.pop("class", None)
    return object_of(classes[0] if name is None else _find(str(name), place), fields, place)


def _dataclasses_in(hint: Any) -> list[type[Any]]:
    if get_origin(hint) is dict:
        return []
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return [hint]
    return [cls for argument in get_args(hint) for cls in _dataclasses_in(argument)]


def _fields(cls: type[Any]) -> list[dataclasses.Field[Any]]:
    set_by_it = _SET_BY_NEMO_RUN if issubclass(cls, run.Executor) else frozenset()
    return [field for field in dataclasses.fields(cls) if field.init and field.name not in set_by_it]
