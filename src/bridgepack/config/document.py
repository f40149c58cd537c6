"""Base of whole files, recipes and clusters: read from plain values, changed by dotted path, written back."""

import copy
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ValidationError

from bridgepack.config.errors import config_error, quote
from bridgepack.config.section import Section
from bridgepack.errors import ConfigError
from bridgepack.records.words import index_in

#: Fields that a section keeps when its kind changes; the last three are packing.balance's.
_KEPT = frozenset({"over_long", "window_batches", "seed", "token_cost"})


class Document(Section):
    """The outermost section of a file."""

    #: The file's name in messages, and the option that sets one of its fields.
    WHAT: ClassVar[str]
    OPTION: ClassVar[str]

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Return the document that plain values describe.

        Raises:
            ConfigError: naming every wrong field, its value, what is allowed and what to do.
        """
        return cls.from_values(values)

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Self:
        """Return the document of plain values, whether or not its author wrote all of them.

        Raises:
            ConfigError: as `from_mapping`, which also refuses what only an author can write.
        """
        try:
            return cls.model_validate(_with_texts(values))
        except ValidationError as error:
            raise config_error(error, cls, content=cls.WHAT, option=cls.OPTION) from None

    def override(self, changes: Mapping[str, Any]) -> Self:
        """Return a copy with some fields changed, validated as a whole.

        `changes` are dotted path -> new value, e.g. `{"packing.packed_sequence_size": 8192}`; entries of lists are
        numbers from 0, as in `data.train.0.weight`. A path is applied before the paths below it. Another `kind` starts
        from that kind's defaults; `over_long` and the fields of packing.balance keep their values.

        Raises:
            ConfigError: a path is unknown or a value impossible.
        """
        if not isinstance(changes, Mapping) or not all(isinstance(path, str) for path in changes):
            raise ConfigError(
                f"overrides is {quote(changes)}; allowed: a mapping, dotted path -> value, e.g. "
                f"{{'packing.seed': 7}}. "
                "Give one."
            )
        values = stated_values(self)
        for path in sorted(changes, key=lambda path: (path.count("."), not path.endswith(".kind"))):
            *sections, leaf = path.split(".")
            if not all([*sections, leaf]):
                raise ConfigError(f"{path!r} is not a field path; allowed: names separated by dots. Correct it.")
            node = _section_at(values, self, path, sections)
            if isinstance(node, list):
                node[_index(node, path, sections, leaf)] = copy.deepcopy(changes[path])
                continue
            if leaf == "kind" and node.get("kind") != changes[path]:
                for name in set(node) - _KEPT:
                    del node[name]
            node[leaf] = copy.deepcopy(changes[path])
        return self._with_changes(values, changes)

    def _with_changes(self, values: dict[str, Any], changes: Mapping[str, Any]) -> Self:  # noqa: ARG002 (of subclasses)
        """Return the document of plain values in which changes stand."""
        return self.from_values(values)


def _with_texts(value: Any) -> Any:
    """Return plain values with texts in place of paths, which Python code gives."""
    if isinstance(value, Mapping):
        return {name: _with_texts(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_texts(item) for item in value]
    return str(value) if isinstance(value, PurePath) else value


def _section_at(values: dict[str, Any], document: Document, path: str, sections: list[str]) -> Any:
    node: Any = values
    section: Any = document
    for depth, name in enumerate(sections):
        if isinstance(node, list):
            index = _index(node, path, sections[:depth], name)
            node, section = node[index], section[index] if isinstance(section, tuple) and index < len(section) else None
        else:
            section = getattr(section, name, None) if isinstance(section, BaseModel) else None
            if node.get(name) is None:
                node[name] = (
                    {"kind": section.kind} if isinstance(section, BaseModel) and hasattr(section, "kind") else {}
                )
            node = node[name]
        if not isinstance(node, dict | list):
            raise ConfigError(
                f"{path}: {'.'.join(sections[: depth + 1])} is a plain value without fields. Set the value as a whole."
            )
    return node


def _index(entries: list[Any], path: str, sections: list[str], name: str) -> int:
    if (index := index_in(len(entries), name)) is not None:
        return index
    allowed_indices = f"0 to {len(entries) - 1}" if entries else "none"
    raise ConfigError(
        f"{path}: {'.'.join(sections)} is a list of {len(entries)}, so {quote(name)} must be an index; "
        f"allowed: {allowed_indices}. Correct the path, or set the list as a whole."
    )


def stated_values(value: Any, *, keeps_null: bool = True) -> Any:
    """Return a section as its author wrote it: plain values without defaults, in field order.

    A section keeps its `kind`; empty sections are left out. `keeps_null` keeps null where null is the default.
    """
    if value is None or isinstance(value, (str, int, float)):  # nearly all of them
        return value
    if isinstance(value, Mapping):
        return {name: stated_values(item, keeps_null=keeps_null) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [stated_values(item, keeps_null=keeps_null) for item in value]
    if not isinstance(value, BaseModel):
        return value
    values = {}
    for name, field in type(value).model_fields.items():
        item = getattr(value, name)
        is_said = name in value.model_fields_set or (name == "kind" and item is not None)
        if is_said and (keeps_null or item is not None or field.default is not None):
            inner = stated_values(item, keeps_null=keeps_null)
            if inner or not isinstance(item, BaseModel):
                values[field.alias or name] = inner
    return values | stated_values(value.model_extra or {}, keeps_null=keeps_null)
