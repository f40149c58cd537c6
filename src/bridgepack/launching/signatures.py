"""Checks a cluster file's fields against the signature of the nemo-run class, and lists the classes."""

import dataclasses
import importlib
from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import nemo_run as run
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, create_model

from bridgepack.config.cluster.base import Facts
from bridgepack.config.cluster.cluster import cluster_error
from bridgepack.config.cluster.executors import KNOWN, TYPED, NemoRunExecutor
from bridgepack.config.cluster.listing import ListedSection, listed
from bridgepack.config.errors import did_you_mean, shown
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


def checked_executor(section: NemoRunExecutor, values: Mapping[str, Any], place: str = "executor") -> dict[str, Any]:
    """Return the fields as the executor's class accepts them, without counts that only the launch reads."""
    cls = find_executor(section.facts.class_name, place)
    told = section.facts.counts - field_names(cls)
    return checked_fields(cls, {name: value for name, value in values.items() if name not in told}, place)


def checked_fields(cls: type[Any], values: Mapping[str, Any], place: str = "executor") -> dict[str, Any]:
    """Return the values converted to the field types of a dataclass, nested sections as objects of their classes.

    `place` is their dotted path in the cluster file; "" omits it from messages.

    Raises:
        ConfigError: fields are unknown, missing or of the wrong type; names every one.
    """
    inner = _model(cls)
    model = create_model("_File", executor=(inner, ...)) if place else inner
    try:
        found: Any = model.model_validate({"executor": values} if place else values)
    except ValidationError as error:
        raise cluster_error(error, model, place=place) from None
    fields = found.executor if place else found
    return {name: getattr(fields, name) for name in fields.model_fields_set}


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


def _model(cls: type[Any], without: frozenset[str] = frozenset()) -> type[BaseModel]:
    hints = get_type_hints(cls)
    fields: dict[str, Any] = {
        field.name: (_checked(hints[field.name]), _default(field))
        for field in _fields(cls)
        if field.name not in without
    }
    config = ConfigDict(
        extra="forbid", arbitrary_types_allowed=True, coerce_numbers_to_str=True, protected_namespaces=()
    )
    return create_model(cls.__name__, __config__=config, **fields)


def _fields(cls: type[Any]) -> list[dataclasses.Field[Any]]:
    set_by_it = _SET_BY_NEMO_RUN if issubclass(cls, run.Executor) else frozenset()
    return [field for field in dataclasses.fields(cls) if field.init and field.name not in set_by_it]


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return ... if field.default_factory is dataclasses.MISSING else Field(default_factory=field.default_factory)


def _checked(hint: Any) -> Any:
    origin: Any = get_origin(hint)
    arguments = get_args(hint)
    if hint in {int, bool}:
        return Annotated[hint, Field(strict=True)]
    if origin in {Union, UnionType} or dataclasses.is_dataclass(hint):
        choices = arguments or (hint,)
        classes = tuple(one for one in choices if dataclasses.is_dataclass(one))
        others = tuple(_checked(one) for one in choices if one not in classes)
        part = (Annotated[dict[str, Any], PlainValidator(lambda value: _part(classes, value))],) if classes else ()
        return Union[(*part, *others)]
    if origin is tuple:
        return origin[_checked(arguments[0]), ...]  # nemo-run writes tuple[str] for tuples of any length
    if origin in {list, dict}:
        return origin[tuple(_checked(one) for one in arguments)]
    return hint


def _part(classes: tuple[Any, ...], value: Any) -> Any:
    """Return the object that a mapping describes; its `class` selects one of several classes or a subclass."""
    names = ", ".join(one.__name__ for one in classes)
    if isinstance(value, classes):
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f" is {shown(value)}; allowed: a section with the fields of {names}. Write one.")
    fields = dict(value)
    name = fields.pop("class", None)
    try:
        cls = classes[0] if name is None else _find(str(name), "part")
        if not (isinstance(cls, type) and issubclass(cls, classes)):
            raise ValueError(f"class is {name}; allowed: {names}, or a class that inherits one. Correct it.")
        return cls(**checked_fields(cls, fields, ""))
    except ConfigError as error:
        lines = [line.strip() for line in str(error).splitlines()]
        raise ValueError(" ".join(lines[1:] or lines).removeprefix("part.")) from None


def _listed(name: str) -> ListedSection:
    facts = next((one for one in KNOWN.values() if one.class_name == name), Facts(class_name=name, title=""))
    try:
        cls = find_executor(name)
    except ConfigError as error:
        return listed(BaseModel, kind="nemo_run", title=str(error), facts=facts)
    title = facts.title or (cls.__doc__ or "").strip().partition("\n")[0]
    own = _model(cls, without=field_names(run.Executor))
    return listed(own, kind="nemo_run", title=title, facts=facts)
