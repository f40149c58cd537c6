"""The blocks of each kind of result, made once for all faces.

In: results as values. Out: blocks. A result that users get needs one function here and nothing else:

    @shows
    def canary_blocks(report: CanaryReport) -> Iterator[Block]: ...

Its command prints `screen(canary_blocks(report))`; notebooks call `blocks_of`.
Read first: `checks`.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache, singledispatch
from importlib import import_module
from pathlib import Path
from typing import Any

from bridgepack.records.results import Result, leaves, plain_values
from bridgepack.reporting.blocks import Block, Column, Table


@singledispatch
def _maker(result: Result) -> Iterable[Block]:
    """Return the table of `to_pandas`, for results without a function of their own."""
    return _table_blocks(type(result).__name__, result.table())


def shows[Function: Callable[..., Iterable[Block]]](function: Function) -> Function:
    """Register a function as what makes the blocks of its first argument's class."""
    _maker.register(function)
    return function


def blocks_of(result: Result) -> tuple[Block, ...]:
    """Return the blocks of any result."""
    _import_all()
    return tuple(_maker(result))


@cache
def _import_all() -> None:
    for path in sorted(Path(__file__).parent.glob("[!_]*.py")):
        import_module(f"{__package__}.{path.stem}")


def _table_blocks(title: str, entries: Iterable[Mapping[str, Any]]) -> list[Block]:
    rows = [dict(leaves(plain_values(entry))) for entry in entries]
    names = tuple(dict.fromkeys(name for row in rows for name in row))
    cells = [[_cell(row.get(name, "")) for name in names] for row in rows]
    columns = tuple(Column(name, "{}  ") for name in names)
    return [Table(title=title, columns=columns, rows=cells, remainder="to_pandas() has all")] if rows else []


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
