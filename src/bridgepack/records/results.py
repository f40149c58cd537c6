"""Base of the results that users get: conversion to plain values and to a table."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bridgepack.errors import ConfigError

if TYPE_CHECKING:
    import pandas


class Result:
    """Result of a command; the base of frozen dataclasses."""

    __slots__ = ()
    #: Properties that `to_dict` includes besides the fields.
    DERIVED: ClassVar[tuple[str, ...]] = ()
    #: Field whose entries are the rows of `to_pandas`.
    TABLE: ClassVar[str] = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values with stable keys, as the command prints it with `--json`."""
        assert is_dataclass(self)
        plain: dict[str, Any] = _plain({**{name: getattr(self, name) for name in self.DERIVED}, **asdict(self)})
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
        return pandas.DataFrame([dict(leaves(_plain(row))) for row in self.table()])

    def table(self) -> Iterable[Mapping[str, Any]]:
        """Return the rows of `to_pandas`, as mappings."""
        return [asdict(entry) for entry in getattr(self, self.TABLE)]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
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
