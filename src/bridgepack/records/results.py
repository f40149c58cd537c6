"""Base of the results that users get: conversion to plain values and to a table."""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bridgepack.errors import ConfigError

if TYPE_CHECKING:
    import pandas


class Result:
    """Result of a command; the base of frozen dataclasses. Printed, it is one line; in a notebook, tables and texts."""

    __slots__ = ()
    #: Properties that `to_dict` includes besides the fields.
    DERIVED: ClassVar[tuple[str, ...]] = ()
    #: Field whose entries are the rows of `to_pandas`.
    TABLE: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        """Keep the short `__repr__`: a dataclass writes its own, of every field, unless the class has one."""
        super().__init_subclass__()
        cls.__repr__ = Result.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        """Return the class and its headline, e.g. `<BuildResult: packed: 8 rows, 8 sequences in 1 pack, 0 dropped>`."""
        return f"<{type(self).__name__}: {self.headline()}>"

    def _repr_html_(self) -> str:
        """Return the result as a part of a page, as notebooks show it."""
        from bridgepack.reporting.html.pages import result_html  # the door of results to the room that draws them

        return result_html(self)

    def headline(self) -> str:
        """Return what came out, in one line."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values with stable keys, as the command prints it with `--json`."""
        assert is_dataclass(self)
        plain: dict[str, Any] = plain_values({**{name: getattr(self, name) for name in self.DERIVED}, **asdict(self)})
        return plain

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the table as a DataFrame, one row per entry; nested columns have dotted names.

        Raises:
            ConfigError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise ConfigError("to_pandas needs pandas, which is not installed. Run: pip install pandas") from None
        return pandas.DataFrame([dict(leaves(plain_values(row))) for row in self.table()])

    def table(self) -> Iterable[Mapping[str, Any]]:
        """Return the rows of `to_pandas`, as mappings."""
        return [asdict(entry) for entry in getattr(self, self.TABLE)]


def plain_values(value: Any) -> Any:
    """Return a value as JSON values: mappings, lists, texts and numbers."""
    if isinstance(value, Mapping):
        return {name: plain_values(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_values(item) for item in value]
    if hasattr(value, "tolist"):
        return value.tolist()  # a numpy number or array
    return str(value) if isinstance(value, Path) else value


def leaves(section: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Yield (dotted path, value); an empty mapping, or one with keys that are not strings, is a value."""
    for name, value in section.items():
        if isinstance(value, Mapping) and value and all(isinstance(key, str) for key in value):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def put(values: dict[str, Any], path: str, value: Any) -> None:
    """Set a dotted path of nested values; a missing section, or one that is no mapping, is created."""
    *sections, leaf = path.split(".")
    for name in sections:
        if not isinstance(values.get(name), dict):
            values[name] = {}
        values = values[name]
    values[leaf] = copy.deepcopy(value)
