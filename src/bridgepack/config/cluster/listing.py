"""The fields of every executor kind, with types, defaults and meanings, as data."""

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any, ClassVar, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from bridgepack.config.cluster.base import Facts, Launcher, Packager
from bridgepack.config.cluster.executors import EXECUTORS, FACTS
from bridgepack.config.cluster.slurm import SlurmJobDetails, Tunnel
from bridgepack.config.errors import alternatives
from bridgepack.config.section import meanings_of
from bridgepack.records.results import Result
from bridgepack.records.words import counted

_NAMES: Mapping[Any, str] = {str: "text", int: "whole number", float: "number", bool: "true or false", Any: "anything"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedField:
    """One field."""

    name: str  #: as in the file
    type: str  #: accepted type, in words
    default: Any  #: as in YAML; None if the field is required or empty
    is_required: bool  #: whether the file must have it
    meaning: str  #: its docstring on one line


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedSection:
    """One section kind: an executor, launcher, packager or tunnel."""

    kind: str  #: its name in the file
    title: str  #: short description
    nemo_run_class: str  #: nemo-run class that it becomes; "" for a part of an executor
    needs: str | None  #: nemo-run extra that it needs, or None
    no_launch: str  #: why launches cannot use it, or ""
    fields: tuple[ListedField, ...]  #: in the file's order


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutorListing(Result):
    """Every executor kind, and every kind of its nested sections."""

    TABLE: ClassVar = "executors"

    executors: tuple[ListedSection, ...]  #: one per kind, then one per class that `kind: nemo_run` can name
    #: `launcher`, `packager`, `tunnel` -> one per kind; `job_details` -> its only section
    parts: dict[str, tuple[ListedSection, ...]]

    def headline(self) -> str:
        """Return what came out, in one line."""
        return counted(len(self.executors), "executor")

    @property
    def knows_classes(self) -> bool:
        """Whether the classes of an installed nemo-run are listed."""
        return any(one.kind == "nemo_run" and one.nemo_run_class for one in self.executors)


def list_executors(classes: tuple[ListedSection, ...] = ()) -> ExecutorListing:
    """Return every executor kind with its fields, types, defaults and meanings; `classes` are those of nemo-run."""
    other = Facts(class_name="", title="any other executor, by its class")
    facts = {kind: FACTS.get(kind, other) for kind in EXECUTORS}
    parts = {"launcher": Launcher, "packager": Packager, "tunnel": Tunnel, "job_details": SlurmJobDetails}
    return ExecutorListing(
        executors=(
            *(listed(EXECUTORS[kind], kind=kind, title=one.title, facts=one) for kind, one in facts.items()),
            *classes,
        ),
        parts={
            name: tuple(
                listed(model, kind=_kind(model), title=" ".join(model.__doc__.split()).rstrip("."))
                for model in alternatives(annotation)
            )
            for name, annotation in parts.items()
        },
    )


def listed(model: type[BaseModel], *, kind: str, title: str, facts: Facts | None = None) -> ListedSection:
    """Return one section kind with the fields of its model; `facts` describe the nemo-run class it becomes, if any."""
    return ListedSection(
        kind=kind,
        title=title,
        nemo_run_class=facts.class_name if facts else "",
        needs=facts.extra if facts else None,
        no_launch=facts.no_launch if facts else "",
        fields=tuple(
            ListedField(
                name=field.alias or name,
                type=type_in_words(field.annotation),
                default=_default(field),
                is_required=field.is_required() or (facts is not None and name in facts.needs),
                meaning=field.description or meanings_of(model).get(name, ""),
            )
            for name, field in model.model_fields.items()
            if name != "kind"
        ),
    )


def _kind(model: type[BaseModel]) -> str:
    field = model.model_fields.get("kind")
    return str(get_args(field.annotation)[0]) if field else ""


def type_in_words(annotation: Any) -> str:
    """Return the accepted type of a field in words: `text`, `whole number`, `list of text`, `launcher`.

    Sections of a union are listed by kind: `none | torchrun`.
    """
    return " | ".join(dict.fromkeys(map(_one_type_in_words, alternatives(annotation))))


def _one_type_in_words(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " | ".join(str(one) for one in arguments)
    if origin in {tuple, list}:
        return f"list of {type_in_words(arguments[0])}"
    if origin is dict:
        value = type_in_words(arguments[1])
        return "section" if value == "anything" else f"names, each with {value}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"section {_kind(annotation)}".strip()
    if is_dataclass(annotation):
        return "section"
    return _NAMES.get(annotation, "anything")


def _default(field: FieldInfo) -> Any:
    if field.is_required():
        return None
    default = field.get_default(call_default_factory=True)
    if isinstance(default, BaseModel):
        return {"kind": _kind(type(default))} if _kind(type(default)) else {}
    if is_dataclass(default):
        return None
    return list(default) if isinstance(default, tuple) else default
