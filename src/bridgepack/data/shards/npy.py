"""Reads packed rows from the `.npy` object arrays of megatron-bridge 0.3, running nothing that their pickle asks for.

A pickle cannot be read in part: a file is loaded whole, once for its facts and once more for its rows, and is some ten
times as large in memory as on disk. The host does the same on every rank.
"""

import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.lib.format as npy_format
import numpy.typing as npt

from bridgepack.data.shards.restricted_pickle import (
    UNPICKLING_ERRORS,
    ForbiddenGlobalError,
    PickledArray,
    RowUnpickler,
)
from bridgepack.errors import ArtifactError
from bridgepack.geometry import IntArray
from bridgepack.records import INPUT_IDS, LOSS_MASK, ROW_COLUMNS, SEQ_START_ID, RowBatch, ShardFacts

NPY = "npy"
NPY_SUFFIX = ".npy"

#: Bytes of a header; numpy writes 118.
_MAX_HEADER_BYTES = 10_000
_UNREADABLE = (OSError, SyntaxError, tokenize.TokenError, *UNPICKLING_ERRORS)
_WHOLE = frozenset({int, bool})

Row = dict[str, Any]


class _LayoutError(Exception):
    """A file is whole, and holds something else than an array of dicts of lists of numbers."""


def read_npy_facts(path: Path, name: str, sha256: str | None) -> ShardFacts:
    """Return what a `.npy` file holds; one that is broken, of another layout or unsafe is a fact, not an error."""
    if not path.is_file():
        return ShardFacts(path=name, exists=False, format=NPY)
    facts = ShardFacts(path=name, exists=True, num_bytes=path.stat().st_size, sha256=sha256, format=NPY)
    try:
        rows = _load_rows(path)
        columns, value_types = _survey(rows)
    except ForbiddenGlobalError as error:
        return replace(facts, read_error=str(error), forbidden_globals=(error.name,))
    except _LayoutError as error:
        return replace(facts, read_error=str(error), layout_error=str(error))
    except _UNREADABLE as error:
        return replace(facts, read_error=_one_line(error))
    return replace(facts, columns=columns, num_rows=len(rows), value_types=value_types)


def iter_npy_batches(path: Path, name: str, *, max_tokens: int) -> Iterator[RowBatch]:
    """Yield a file's rows in order, about `max_tokens` tokens each; what was yielded is let go of.

    Args:
        path: of the file.
        name: what the batches call it.
        max_tokens: bound on the stored tokens of a batch; a single row may exceed it.

    Raises:
        ArtifactError: the file cannot be read to its end, or a row is no dict of lists of numbers.
    """
    first_row = 0
    try:
        remaining = _load_rows(path)
        remaining.reverse()
        while remaining:
            batch = _batch(_take(remaining, first_row, max_tokens), name, first_row)
            yield batch
            first_row += batch.num_rows
    except (ForbiddenGlobalError, _LayoutError, *_UNREADABLE) as error:
        raise ArtifactError(f"{name} cannot be read from row {first_row}: {_one_line(error)}.") from None


def _load_rows(path: Path) -> list[Any]:
    with path.open("rb") as stream:
        _check_header(stream)
        array = RowUnpickler(stream).load()
    if not isinstance(array, PickledArray) or not isinstance(array.data, list):
        raise _LayoutError(f"its pickle holds {_kind(array)}, no object array")
    if array.shape != (len(array.data),):
        raise _LayoutError(f"an array of shape {array.shape}; the host needs one dimension")
    return array.data


def _check_header(stream: IO[bytes]) -> None:
    """Read past the header.

    Raises:
        _LayoutError: it is an array of numbers, not of objects.
        ValueError: it is no header of a `.npy` file, or an absurdly long one.
    """
    version = npy_format.read_magic(stream)
    read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    shape, _, dtype = read(stream, max_header_size=_MAX_HEADER_BYTES)
    if dtype != np.dtype(object):
        raise _LayoutError(f"an array of {dtype}, shape {shape}; the host needs an object array of dicts")


def _survey(rows: Sequence[Any]) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Return (columns that all rows have -> type; column -> what values are that are no lists).

    Raises:
        _LayoutError: a row is no dict, or a value can be read as a list in no way.
    """
    columns: dict[str, str] = {}
    others: dict[str, tuple[str, ...]] = {}
    checked = [_checked(row, number) for number, row in enumerate(rows)]
    for key in ROW_COLUMNS:
        present = [(number, row[key]) for number, row in enumerate(checked) if key in row]
        kinds: set[type] = set()
        for number, value in present:
            values = _elements(value, number, key)
            kinds |= {_whole(item) for item in values} if key == LOSS_MASK else set(map(type, values))
        if len(present) == len(rows):
            columns[key] = _list_type(kinds)
        if no_lists := {_kind(value) for _, value in present if not isinstance(value, list)}:
            others[key] = tuple(sorted(no_lists))
    return columns, others


def _whole(item: Any) -> type:
    """Return the type of an element of a mask; 1.0 means 1 there."""
    return int if type(item) is float and item.is_integer() else type(item)


def _checked(row: Any, number: int) -> Row:
    if not isinstance(row, dict):
        raise _LayoutError(f"row {number} is {_kind(row)}, no dict")
    return row


def _elements(value: Any, number: int, key: str) -> Sequence[Any]:
    if isinstance(value, list | tuple):
        return value
    if not isinstance(value, PickledArray):
        raise _LayoutError(f"row {number} {key} is {_kind(value)}, no list")
    try:
        return value.numbers()
    except (ValueError, TypeError) as error:
        raise _LayoutError(f"row {number} {key}: {error}") from None


def _list_type(elements: set[type]) -> str:
    """Return the type of an Arrow column with these elements: {int, bool} -> `list<element: int64>`."""
    if elements <= _WHOLE:
        return "list<element: int64>"
    if elements <= {*_WHOLE, float}:
        return "list<element: double>"
    return f"list<element: {min(kind.__name__ for kind in elements - _WHOLE - {float})}>"


def _kind(value: object) -> str:
    if isinstance(value, PickledArray):
        return "numpy.ndarray"
    return "None" if value is None else type(value).__name__


def _take(remaining: list[Any], first_row: int, max_tokens: int) -> list[Row]:
    """Return the next rows, taken off the end of `remaining`."""
    rows: list[Row] = []
    num_tokens = 0
    while remaining:
        row = _checked(remaining[-1], first_row + len(rows))
        num_tokens += len(_elements(row.get(INPUT_IDS), first_row + len(rows), INPUT_IDS))
        if rows and num_tokens > max_tokens:
            break
        rows.append(row)
        remaining.pop()
    return rows


def _batch(rows: Sequence[Row], name: str, first_row: int) -> RowBatch:
    ids, token_offsets = _flat(rows, INPUT_IDS, first_row)
    mask, mask_offsets = _flat(rows, LOSS_MASK, first_row)
    starts, start_offsets = _flat(rows, SEQ_START_ID, first_row)
    return RowBatch(
        shard=name,
        first_row=first_row,
        input_ids=ids,
        token_offsets=token_offsets,
        loss_mask=mask,
        mask_offsets=mask_offsets,
        seq_start_id=starts,
        start_offsets=start_offsets,
    )


def _flat(rows: Sequence[Row], key: str, first_row: int) -> tuple[npt.NDArray[Any], IntArray]:
    """Return (values, int64 offsets) of one key.

    Raises:
        _LayoutError: a row lacks the key, or an element is no integer of 64 bits; masks may have floats.
    """
    lists = [_elements(row.get(key), first_row + position, key) for position, row in enumerate(rows)]
    offsets: IntArray = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    if offsets[-1] == 0:
        return np.empty(0, dtype=np.int64), offsets
    values: npt.NDArray[Any] = np.array(list(chain.from_iterable(lists)))
    if values.dtype == np.bool_:
        values = values.astype(np.int8)
    if values.ndim != 1 or not (values.dtype.kind == "i" or (key == LOSS_MASK and values.dtype.kind == "f")):
        raise _LayoutError(f"an element of {key} is no 64-bit integer")
    return values, offsets


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
