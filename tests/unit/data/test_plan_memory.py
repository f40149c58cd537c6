"""Memory of the process that plans, per sequence, from the results of ranges to the statistics of the artifact."""

import tracemalloc
from pathlib import Path

import numpy as np

from bridgepack.config.recipe.data import MixtureConfig
from bridgepack.data.packing.plan import plan_packs
from bridgepack.data.sequences.over_long import HistoryCut, SequencePolicy
from bridgepack.data.stages.finish import SEQUENCE, RangePart, RangePlace, RangeResult
from bridgepack.data.stages.mixture import mix_sources
from bridgepack.data.stages.notes import Notes, write_notes
from bridgepack.data.stages.split import gather_split, shard_plans, split_statistics
from bridgepack.records import TRAIN, Drop, InputRecord, LostContent

_RANGES, _ROWS = 4, 50_000
#: What docs/scale.md says, in bytes per sequence; half of it is a sequence's own record, twice while they are gathered.
_MOST = 95


def test_a_sequence_takes_few_bytes() -> None:
    """A build of billions of sequences plans them in memory."""
    results = [_range(index) for index in range(_RANGES)]
    inputs = [InputRecord(path="a", num_bytes=1, sha256="", num_rows=0, source=0)]
    tracemalloc.start()
    try:
        held = _RANGES * _ROWS * SEQUENCE.itemsize
        split = gather_split(TRAIN, inputs, results, splits_rows=False)
        peaks = {"gathered": held + tracemalloc.get_traced_memory()[1]}
        results.clear()
        tracemalloc.reset_peak()
        split = mix_sources(split, ("a",), MixtureConfig(), seed=1)
        peaks["mixed"] = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        plan = plan_packs(split.runtime_lengths(1), packed_sequence_size=4096)
        peaks["planned"] = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        policy = SequencePolicy(
            max_runtime_length=4096, action="drop", eos_token_id=2, masks_after_eos=False, pairs=None
        )
        (shard,) = shard_plans(split, plan, folder=Path("unused"), multiple=1, policy=policy)
        peaks["written"] = tracemalloc.get_traced_memory()[1]
        assert len(shard.store_files) == _RANGES * _ROWS
        del shard
        tracemalloc.reset_peak()
        assert split_statistics(split, plan, 1).num_tokens == 7 * _RANGES * _ROWS
        peaks["counted"] = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    per_sequence = {stage: peak / (_RANGES * _ROWS) for stage, peak in peaks.items()}
    assert max(per_sequence.values()) < _MOST, per_sequence


def _range(index: int) -> RangeResult:
    sequences = np.zeros(_ROWS, dtype=SEQUENCE)
    sequences["stored_length"], sequences["num_trained"] = 8, 7
    sequences["index"] = sequences["row_offset"] = np.arange(_ROWS)
    no_drops: Notes[Drop] = write_notes(Path("unused"), [], split=TRAIN, file="a", field="reason")
    no_losses: Notes[LostContent] = write_notes(Path("unused"), [], split=TRAIN, file="a", field="kind")
    part = RangePart(
        sequences=sequences,
        hashes=None,
        sources=None,
        num_rows=_ROWS,
        drops=no_drops,
        dropped_pieces=no_drops,
        losses=no_losses,
        cut=HistoryCut(),
    )
    place = RangePlace(file_index=0, label="a", first_row=1 + index * _ROWS, token_file=Path(f"{index}.tokens"))
    return RangeResult(place=place, parts={TRAIN: part}, num_rows=_ROWS)
