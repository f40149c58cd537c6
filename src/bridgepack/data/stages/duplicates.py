"""Drops rows whose tokens and mask an earlier row has: of all ranges of all splits, validation before training."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bridgepack.data.stages.finish import FinishSettings, RangePart, RangePlace, RangeResult, finish_range
from bridgepack.data.tasks import Beat, Runner, result_of
from bridgepack.geometry import IntArray
from bridgepack.records import SPLITS

#: Settings, a range, and its 0-based row -> what the ledger says of it.
_Task = tuple[FinishSettings, RangePlace, Mapping[int, str]]


class _Rows(NamedTuple):
    """The packed rows of one part of a range, in row order."""

    source: str  #: split that its file is of
    position: int  #: of the range among those of the source
    split: str  #: that the rows go to
    place: RangePlace
    row_offsets: npt.NDArray[np.int32]  #: shape [num_rows], int32, 0-based row within the range
    hashes: npt.NDArray[np.uint64]  #: shape [num_rows, 2], uint64, of ids and mask


def without_duplicates(
    results: Mapping[str, Sequence[RangeResult]], settings: Mapping[str, FinishSettings], runner: Runner
) -> dict[str, list[RangeResult]]:
    """Return what becomes of the ranges of each split's files when only the first of equal rows stays.

    Which row is the first depends on the inputs alone: validation before training, then files and rows in order. Takes
    16 bytes a row, and 70 while they are compared.

    Raises:
        DataError: when a worker cannot be kept alive.
    """
    parts = [
        _rows(source, position, split, result.place, result.parts[split])
        for split in reversed(SPLITS)
        for source, ranges in results.items()
        for position, result in enumerate(ranges)
        if split in result.parts
    ]
    starts = np.cumsum([0, *(len(part.row_offsets) for part in parts)])
    firsts = first_equal(np.concatenate([np.empty((0, 2), dtype=np.uint64), *(part.hashes for part in parts)]))
    found: dict[tuple[str, int], dict[int, str]] = defaultdict(dict)
    for row in np.flatnonzero(firsts != np.arange(len(firsts))).tolist():
        (part, at), (kept, kept_at) = (_place(starts, index) for index in (row, int(firsts[row])))
        offset, first = int(parts[part].row_offsets[at]), int(parts[kept].row_offsets[kept_at])
        origin = f"{parts[kept].place.label} row {parts[kept].place.first_row + first}"
        detail = f"tokens and mask are those of {origin}, in {parts[kept].split}"
        found[parts[part].source, parts[part].position][offset] = detail
    less = {source: list(ranges) for source, ranges in results.items()}
    tasks = ((settings[source], less[source][position].place, rows) for (source, position), rows in found.items())
    for (source, position), outcome in zip(found, runner.run(_finish_again, tasks), strict=True):
        less[source][position] = result_of(outcome)
    return less


def first_equal(hashes: npt.NDArray[np.uint64]) -> IntArray:
    """Return for each row of hashes the first that equals it: [[1 2] [3 4] [1 2]] -> [0 1 0].

    Args:
        hashes: shape [num_rows, 2], uint64.
    """
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))
    is_new = np.ones(len(order), dtype=np.bool_)
    is_new[1:] = False
    for column in hashes.T:
        is_new[1:] |= np.diff(column[order]) != 0
    firsts = np.empty(len(order), dtype=np.int64)
    firsts[order] = order[is_new][np.cumsum(is_new) - 1]
    return firsts


def _rows(source: str, position: int, split: str, place: RangePlace, part: RangePart) -> _Rows:
    """Return the rows of a part; one that was split into several sequences once."""
    assert part.hashes is not None
    row_offsets = part.sequences["row_offset"]
    is_first = np.diff(row_offsets, prepend=-1) != 0
    return _Rows(source, position, split, place, row_offsets[is_first], part.hashes[is_first])


def _place(starts: IntArray, row: int) -> tuple[int, int]:
    """Return the part that a row is of, and its position there."""
    part = int(np.searchsorted(starts, row, side="right")) - 1
    return part, row - int(starts[part])


def _finish_again(task: _Task, _: Beat) -> RangeResult:
    settings, place, duplicates = task
    return finish_range(settings, place, duplicates)
