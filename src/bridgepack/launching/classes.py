"""Finds nemo-run's executor classes, makes objects of them from the fields of a cluster file, and lists them."""

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any, get_args, get_origin, get_type_hints

import nemo_run as run

from bridgepack.config.cluster.base import Facts
from bridgepack.config.cluster.executors import KNOWN, TYPED
from bridgepack.config.cluster.listing import ListedField, ListedSection, type_in_words
from bridgepack.config.errors import did_you_mean
from bridgepack.errors import ConfigError

#: Executor fields that nemo-run sets itself.
_SET_BY_NEMO_RUN = frozenset({"experiment_id", "job_dir"})


def find_executor(name: str, place: str = "executor") -> type[Any]:
    """Return an executor's class by its name in nemo_run or its dotted path; `place` is for messages.

    Raises:
        ConfigError: it does not exist, or cannot be imported.
    """
    found = _find(name, place)
    if not (isinstance(found, type) and issubclass(found, run.Executor) and dataclasses.is_dataclass(found)):
        raise ConfigError(f"{place}.class is {name}; allowed: a dataclass that inherits nemo_run.Executor. Correct it.")
    return found


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


def list_classes() -> tuple[ListedSection, ...]:
    """Return every executor class of the installed nemo-run without its own kind, with its fields."""
    named = [name for name in sorted(run.__all__) if name.endswith("Executor") and name not in {"Executor", *TYPED}]
    dotted = [facts.class_name for facts in KNOWN.values() if "." in facts.class_name]
    return tuple(_listed(name) for name in (*named, *dotted))


def _find(name: str, place: str) -> Any:
    path, _, last = name.rpartition(".")
    if path:
        try:
            module = importlib.import_module(path)
        except ImportError as error:
            extra = next((one.extra for one in KNOWN.values() if one.class_name == name), None)
            hint = f"Install what it needs: pip install 'nemo-run[{extra}]'." if extra else "Install it, or correct it."
            raise ConfigError(f"{place}.class is {name}; {error}. {hint}") from None
    else:
        module = run
    if hasattr(module, last):
        return getattr(module, last)
    hint = did_you_mean(last, [one for one in dir(module) if one.endswith("Executor")], "Correct it.")
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
    return [found for argument in get_args(hint) for found in _dataclasses_in(argument)]


def _fields(cls: type[Any]) -> list[dataclasses.Field[Any]]:
    set_by_it = _SET_BY_NEMO_RUN if issubclass(cls, run.Executor) else frozenset()
    return [field for field in dataclasses.fields(cls) if field.init and field.name not in set_by_it]


def _listed(name: str) -> ListedSection:
    facts = next((one for one in KNOWN.values() if one.class_name == name), Facts(class_name=name, title=""))
    fields: tuple[ListedField, ...] = ()
    try:
        cls = find_executor(name)
    except ConfigError as error:
        title = str(error)
    else:
        title = facts.title or (cls.__doc__ or "").strip().partition("\n")[0]
        fields = _listed_fields(cls, facts)
    return ListedSection(
        kind="nemo_run",
        title=title,
        nemo_run_class=facts.class_name,
        needs=facts.extra,
        no_launch=facts.no_launch,
        fields=fields,
    )


def _listed_fields(cls: type[Any], facts: Facts) -> tuple[ListedField, ...]:
    """Return the fields that a class adds to those of every executor."""
    hints, of_all = get_type_hints(cls), field_names(run.Executor)
    return tuple(
        ListedField(
            name=field.name,
            type=type_in_words(hints[field.name]),
            default=_default(field),
            is_required=_is_required(field) or field.name in facts.needs,
            meaning="",
        )
        for field in _fields(cls)
        if field.name not in of_all
    )


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _default(field: dataclasses.Field[Any]) -> Any:
    """Return a default as YAML has it; None for objects of nemo-run, and where there is none."""
    value = field.default
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    if value is dataclasses.MISSING:
        return None
    if dataclasses.is_dataclass(value):
        return None
    return list(value) if isinstance(value, tuple) else value
