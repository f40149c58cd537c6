"""Reads an artifact's plan and ledger: which input row became which sequence of which pack, or was dropped."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bridgepack.data.artifact.artifact import DROPPED_ROWS_FILE, LOST_CONTENT_FILE, PLAN_FOLDER, Artifact
from bridgepack.data.reading.remote import arrow_source
from bridgepack.data.shards.row_groups import numpy_array
from bridgepack.errors import ArtifactError
from bridgepack.geometry import IntArray

#: Column that only plans of recipes that make several sequences of a row have.
FIRST_TOKEN = "first_token"
#: Maximum packs in one Parquet filter; a longer filter costs more than it saves.
_PACKS_PER_FILTER = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanEntry:
    """One sequence of an artifact.

    The sequences of a row are numbered by their first tokens: those of its sequences before sizes apply, one after the
    other. A row of two conversations with 100 and 60 stored tokens, pieces of at most 50 runtime tokens -> 0, 50, 100,
    150.
    """

    pack: int  #: row of the split, from 0
    position: int  #: in the pack, from 0
    file_index: int  #: position of its file in the split's list of inputs
    row: int  #: of that file, from 1
    runtime_length: int  #: without alignment padding
    is_truncated: bool  #: it was cut and lost tokens
    first_token: int = 0  #: start in its row, stored coordinates; 0 unless the row became several sequences


@dataclass(frozen=True, kw_only=True, slots=True)
class DroppedRow:
    """An input row that gave no sequence, or a piece of one that was dropped while others stay; `row` counts from 1.

    Attributes:
        split: where it would have gone.
        first_token: of a piece, its start in the row, see `PlanEntry`; None for a row.
    """

    split: str
    file: str
    row: int
    reason: str
    detail: str
    first_token: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LostRow:
    """A packed input row whose rendered text lost or garbled part of it; `row` counts from 1."""

    split: str
    file: str
    row: int
    kind: str
    detail: str


def plan_path(artifact: Artifact, split: str) -> Path:
    """Return the path of a split's plan."""
    return artifact.folder / PLAN_FOLDER / f"{split}.parquet"


def has_pieces(artifact: Artifact, split: str) -> bool:
    """Return whether a split's plan records where sequences begin in their rows; the plan must exist.

    Raises:
        ArtifactError: it cannot be read.
    """
    path = plan_path(artifact, split)
    try:
        return FIRST_TOKEN in pq.read_schema(arrow_source(path)).names
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from None


def entries_of_packs(artifact: Artifact, split: str, packs: Iterable[int]) -> dict[int, tuple[PlanEntry, ...]]:
    """Return pack -> its sequences in order; empty for an artifact without a plan.

    Raises:
        ArtifactError: the plan cannot be read.
    """
    numbers = sorted(set(packs))
    entries_of: dict[int, tuple[PlanEntry, ...]] = {}
    for first in range(0, len(numbers), _PACKS_PER_FILTER):
        group = numbers[first : first + _PACKS_PER_FILTER]
        entries = _read(artifact, split, [("pack", ">=", group[0]), ("pack", "<=", group[-1]), ("pack", "in", group)])
        for pack, members in groupby(entries, key=lambda entry: entry.pack):
            entries_of[pack] = tuple(members)
    return entries_of


def entries_of_row(artifact: Artifact, split: str, file_indices: Sequence[int], row: int) -> tuple[PlanEntry, ...]:
    """Return the sequences of an input row: none, one, its pieces in order, or one per repetition in a mixture.

    Raises:
        ArtifactError: the plan cannot be read.
    """
    entries = _read(artifact, split, [("row", "=", row), ("file_index", "in", list(file_indices))])
    return tuple(sorted(entries, key=lambda entry: entry.first_token))


def entries_of_rows(artifact: Artifact, split: str, rows: Collection[tuple[int, int]]) -> Iterator[PlanEntry]:
    """Yield the sequences of input rows, each (index of its file, row).

    Raises:
        ArtifactError: the plan cannot be read.
    """
    files, numbers = ({row[place] for row in rows} for place in (0, 1))
    for entry in _read(artifact, split, [("row", "in", numbers), ("file_index", "in", files)]):
        if (entry.file_index, entry.row) in rows:
            yield entry


def iter_plan_columns(artifact: Artifact, split: str, names: Sequence[str]) -> Iterator[tuple[IntArray, ...]]:
    """Yield some columns of a split's plan, chunk by chunk, in pack order.

    Raises:
        ArtifactError: it is missing, cannot be read, or holds anything but integers.
    """
    path = plan_path(artifact, split)
    if not path.is_file():
        raise ArtifactError(f"{path} is missing; it records where sequences came from. Build the artifact again.")
    try:
        with pq.ParquetFile(arrow_source(path)) as file:
            for batch in file.iter_batches(columns=list(names)):
                columns = {name: numpy_array(batch.column(name)) for name in names}
                for name, values in columns.items():
                    if values.dtype.kind not in "iu":
                        raise _not_whole(path, name)
                yield tuple(values.astype(np.int64) for values in columns.values())
    except (pa.ArrowException, OSError, LookupError) as error:
        raise _unreadable(path, error) from None


def iter_dropped_rows(artifact: Artifact, *, row: int | None = None) -> Iterator[DroppedRow]:
    """Yield the ledger's lines, or only those that can be of a row; none for an artifact without a ledger.

    Raises:
        ArtifactError: a line cannot be read.
    """
    marks = ("",) if row is None else (f'"row": {row},', f'"row":{row},')
    return _entries(artifact.folder / PLAN_FOLDER / DROPPED_ROWS_FILE, DroppedRow, marks)


def iter_lost_content(artifact: Artifact, *, kind: str | None = None) -> Iterator[LostRow]:
    """Yield the lines of the lost-content ledger, or only those of a kind; none for an artifact without one.

    Raises:
        ArtifactError: a line cannot be read.
    """
    marks = ("",) if kind is None else (f'"{kind}"',)
    lines = _entries(artifact.folder / PLAN_FOLDER / LOST_CONTENT_FILE, LostRow, marks)
    return (line for line in lines if kind is None or line.kind == kind)


def _entries[Entry: (DroppedRow, LostRow)](
    path: Path, kind: type[Entry], marks: Sequence[str] = ("",)
) -> Iterator[Entry]:
    """Yield the lines of a ledger that contain one of the marks, as dataclasses."""
    if not path.is_file():
        return
    try:
        with path.open(encoding="utf-8") as stream:
            for line in stream:
                if any(mark in line for mark in marks):
                    entry = json.loads(line)
                    names = [item.name for item in fields(kind) if item.default is MISSING or item.name in entry]
                    yield kind(**{name: entry[name] for name in names})
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _unreadable(path, error) from None


def _read(artifact: Artifact, split: str, filters: list[tuple[str, str, Any]]) -> list[PlanEntry]:
    path = plan_path(artifact, split)
    if not path.is_file():
        return []
    try:
        table = pq.read_table(arrow_source(path), filters=filters)
        for field, column in zip(table.schema, table.columns, strict=True):
            if column.null_count or not (pa.types.is_integer(field.type) or pa.types.is_boolean(field.type)):
                raise _not_whole(path, field.name)
        entries = [PlanEntry(**row) for row in table.to_pylist()]
        return sorted(entries, key=lambda entry: (entry.pack, entry.position))
    except (pa.ArrowException, OSError, KeyError, TypeError) as error:
        raise _unreadable(path, error) from None


def _not_whole(path: Path, name: str) -> ArtifactError:
    return ArtifactError(f"{path}: {name} holds values that are not integers. Build the artifact again.")


def _unreadable(path: Path, error: BaseException) -> ArtifactError:
    reason = " ".join(str(error).split())[:200]
    return ArtifactError(f"{path} cannot be read: {reason}. Build the artifact again.")
