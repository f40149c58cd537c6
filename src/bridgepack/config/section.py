"""The base of every recipe section: frozen, no unknown fields, every field documented."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from textwrap import dedent
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue


@dataclass(frozen=True, slots=True)
class Before:
    """Marks a younger field: `Annotated[KIND, Before(VALUE)]`.

    The value equals the behaviour before the field existed. It alone is left out of fingerprints and of names in the
    token store, so that older artifacts keep theirs, whatever the default is.
    """

    value: Any  #: as JSON writes it


#: Characters of a text that a message shows.
_SHOWN = 80
#: True or false; other YAML says neither: `no` and `off` are texts in YAML 1.2, and false in 1.1.
Flag = Annotated[bool, Field(strict=True)]


class Section(BaseModel):
    """A frozen recipe section; validators only reject, they never fill or change a value."""

    # pydantic's use_attribute_docstrings reads all field docstrings at every program start, which takes longer than all
    # its other work on these sections; schemas call `meanings_of` instead.
    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False, str_min_length=1, defer_build=True
    )

    @field_validator("*")
    @classmethod
    def _refuse_impossible_text(cls, value: Any) -> Any:
        """Refuse text that no path, column, variable or file of JSON can have, wherever it stands in a field."""
        if isinstance(value, str | Mapping | list | tuple):
            for path, text, is_name in _texts_in(value):
                if kind := _impossible(text):
                    claim = f"{'has a name' if is_name else 'is'} {repr(text)[:_SHOWN]}"
                    raise ValueError(f"{path} {claim}; allowed: text without {kind}. Remove them.")
        return value

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the section's JSON Schema with the meanings of its fields; `kind` is always required."""
        schema = handler(core_schema)
        section_schema = handler.resolve_ref_schema(schema)
        if cls.__doc__:
            section_schema["description"] = _on_lines(cls.__doc__)
        properties = section_schema.get("properties", {})
        for name, meaning in meanings_of(cls).items():
            if name in properties:
                properties[name].setdefault("description", meaning)
        is_tag = "kind" in properties and cls.model_fields["kind"].default is not None
        if is_tag and "kind" not in section_schema.setdefault("required", []):
            section_schema["required"].append("kind")
        return schema


def _texts_in(value: Any, path: str = "") -> Iterator[tuple[str, str, bool]]:
    """Yield (dotted path in the field, text, whether it is a mapping's key) of the texts outside inner sections."""
    if isinstance(value, str):
        yield path, value, False
    elif isinstance(value, Mapping):
        for name, item in value.items():
            if isinstance(name, str):
                yield path, name, True
            yield from _texts_in(item, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _texts_in(item, f"{path}.{index}" if path else str(index))


def _impossible(text: str) -> str:
    """Return what a text has that no file can; empty if nothing."""
    if "\0" in text:
        return "null characters"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "halves of surrogate pairs"
    return ""


@cache
def younger_fields(section: type[BaseModel]) -> Mapping[str, Any]:
    """Return younger field -> the value that equals the behaviour before it existed."""
    marks = {
        name: [mark for mark in field.metadata if isinstance(mark, Before)]
        for name, field in section.model_fields.items()
    }
    return {name: marks_of_field[0].value for name, marks_of_field in marks.items() if marks_of_field}


def without_younger(section: type[BaseModel] | None, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section's plain values without the younger fields that change nothing; None knows no younger fields."""
    younger, inner = ({}, {}) if section is None else (younger_fields(section), _inner_sections(section))
    return {
        name: without_younger(inner[name], value) if name in inner and isinstance(value, Mapping) else value
        for name, value in values.items()
        if name not in younger or value != younger[name]
    }


@cache
def _inner_sections(section: type[BaseModel]) -> Mapping[str, type[BaseModel]]:
    """Return field -> section, for fields that are a section or None."""
    kinds = {name: (field.annotation, *get_args(field.annotation)) for name, field in section.model_fields.items()}
    return {
        name: kind
        for name, alternatives in kinds.items()
        for kind in alternatives
        if isinstance(kind, type) and issubclass(kind, BaseModel)
    }


@cache
def meanings_of(section: type[BaseModel]) -> Mapping[str, str]:
    """Return field -> meaning: the docstring below the field; for a `kind` with one value, that value."""
    if section in (BaseModel, Section):
        return {}
    kinds = get_args(section.model_fields["kind"].annotation) if "kind" in section.model_fields else ()
    kind = {"kind": f"`{kinds[0]}`"} if len(kinds) == 1 else {}
    base_meanings = [meanings_of(base) for base in reversed(section.__bases__) if issubclass(base, BaseModel)]
    return {
        name: meaning
        for meanings in (kind, *base_meanings, _own_meanings(section))
        for name, meaning in meanings.items()
    }


def _own_meanings(section: type[BaseModel]) -> dict[str, str]:
    try:
        source = inspect.getsource(section)
    except OSError:  # no source file: created by code or typed interactively
        return {}
    body = ast.parse(dedent(source)).body[0]
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id: _on_lines(text.value.value)
        for field, text in pairwise(body.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def _on_lines(text: str) -> str:
    """Return a docstring with one line per paragraph, as editors show it."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in inspect.cleandoc(text).split("\n\n"))
