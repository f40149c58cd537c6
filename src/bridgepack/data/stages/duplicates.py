"""Drops rows whose tokens and mask equal those of an earlier row, across all ranges and splits."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bridgepack.data.shards.row_groups import numpy_array
from bridgepack.data.stages.finish import FinishSettings, RangePart, RangePlace, RangeResult, finish_range
from bridgepack.data.tasks import Beat, Runner, result_of
from bridgepack.geometry import IntArray
from bridgepack.records import SPLITS

#: (settings, range, 0-based row -> detail for the ledger)
_Task = tuple[FinishSettings, RangePlace, Mapping[int, str]]


def without_duplicates(
    results: Mapping[str, Sequence[RangeResult]], settings: Mapping[str, FinishSettings], runner: Runner
) -> dict[str, list[RangeResult]]:
    """Return split -> results of its ranges, keeping only the first of equal rows.

    Which row is first depends only on the inputs: validation before training, then files and rows in order. Takes
    16 bytes of memory per row, and 70 during the comparison.

    Raises:
        DataError: workers keep dying.
    """
    parts = [
        (source, position, split)
        for split in reversed(SPLITS)
        for source, ranges in results.items()
        for position, result in enumerate(ranges)
        if split in result.parts
    ]
    rows = [_rows(results[source][position].parts[split]) for source, position, split in parts]
    part_of = np.repeat(np.arange(len(parts), dtype=np.int32), [len(offsets) for offsets, _ in rows])
    offsets = np.concatenate([np.empty(0, dtype=np.int32), *(offsets for offsets, _ in rows)])
    firsts = first_equal(np.concatenate([np.empty((0, 2), dtype=np.uint64), *(hashes for _, hashes in rows)]))
    found: dict[tuple[str, int], dict[int, str]] = defaultdict(dict)
    for row in np.flatnonzero(firsts != np.arange(len(firsts))).tolist():
        (source, position, _), (kept, at, split) = parts[part_of[row]], parts[part_of[firsts[row]]]
        own, first = (
            f"{place.label} row {place.first_row + int(offsets[index])}"
            for place, index in ((results[source][position].place, row), (results[kept][at].place, firsts[row]))
        )
        detail = f"tokens and mask equal those of {first}, in {split}"
        if own == first:
            detail = f"data names its file more than once; {split} already has the row"
        found[source, position][int(offsets[row])] = detail
    less = {source: list(ranges) for source, ranges in results.items()}
    tasks = ((settings[source], less[source][position].place, same) for (source, position), same in found.items())
    for (source, position), outcome in zip(found, runner.run(_finish_again, tasks), strict=True):
        less[source][position] = result_of(outcome)
    return less


def first_equal(hashes: npt.NDArray[np.uint64]) -> IntArray:
    """Return the index of the first equal row; `hashes` are [num_rows, 2], uint64: [[1 2] [3 4] [1 2]] -> [0 1 0]."""
    wide = pa.Array.from_buffers(pa.binary(16), len(hashes), [None, pa.py_buffer(np.ascontiguousarray(hashes))])
    codes = numpy_array(wide.dictionary_encode().indices)
    firsts: IntArray = np.unique(codes, return_index=True)[1][codes]
    return firsts


def _rows(part: RangePart) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint64]]:
    """Return (0-based rows within the range, hashes) of a part; a row that was split appears once."""
    assert part.hashes is not None
    row_offsets = part.sequences["row_offset"]
    is_first = np.diff(row_offsets, prepend=-1) != 0
    return row_offsets[is_first], part.hashes[is_first]


def _finish_again(task: _Task, _: Beat) -> RangeResult:
    settings, place, duplicates = task
    return finish_range(settings, place, duplicates)
