"""Totals over rows, and sequences shared by splits, on rows anyone can count; parts merge to the whole."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bridgepack.rules.judging.context import CheckContext
from bridgepack.rules.judging.overlap import OverlapFinder, hash_sequences
from bridgepack.rules.judging.rows import Rows, rows_of
from bridgepack.rules.judging.truth import SplitTruth, truth_of
from tests.unit.rules.in_memory_artifact import Row, row_batch

CONTEXT = CheckContext(packed_sequence_size=16, pad_seq_to_mult=4, eos_token_id=2)
NARROW = CheckContext(packed_sequence_size=8, pad_seq_to_mult=4, eos_token_id=2)
PADDED: Row = [[11, 12, 13, 2, 2, 21, 2, 2, 2, 2], [0, 1, 1, 0, 0, 1, 0, 0, 0, 0], [0, 5]]
PLAIN: Row = [[31, 32, 33, 34, 35, 36, 37, 38, 39], [0, 0, 0, 1, 1, 1, 1, 1, 0], [0]]
SHORT_UNPADDED: Row = [[11, 12, 13, 14, 2], [0, 0, 0, 1, 0], [0]]
SHORT_TRAINS_EOS_INPUT: Row = [[11, 12, 2, 13, 99], [0, 0, 1, 0, 0], [0]]
#: Full with padding at its end, inside it and nowhere; short without padding and with it at its end.
EVERY: list[Row] = [
    [[11, 12, 13, 14, 2, 21, 2, 2, 2, 2], [0, 1, 1, 1, 0, 0, 1, 0, 0, 0], [0, 5]],
    [[21, 2, 2, 2, 2, 11, 12, 13, 14, 2], [0, 1, 0, 0, 0, 0, 1, 1, 1, 0], [0, 5]],
    [[11, 12, 13, 14, 2, 11, 12, 13, 14, 2], [0, 1, 1, 1, 0] * 2, [0, 5]],
    *(SHORT_UNPADDED, [[11, 12, 2, 2, 2], [0, 1, 1, 0, 0], [0]], SHORT_TRAINS_EOS_INPUT),
]


def _sound(rows: list[Row], context: CheckContext = CONTEXT) -> Rows:
    return rows_of(row_batch(rows), context)


def _truth(rows: list[Row], context: CheckContext = NARROW) -> SplitTruth:
    return truth_of(_sound(rows, context))


def test_hash_tells_zeros_apart() -> None:
    rows: list[Row] = [[[0, 0], [0, 0], [0]], [[0, 0, 0], [0, 0, 0], [0]], [[0, 1], [0, 0], [0]]]
    assert len(set(hash_sequences(_sound(rows)).hashes.tolist())) == 3


def test_overlap_counts_distinct_sequences_of_the_smaller_split() -> None:
    finder = OverlapFinder(largest_split="training")
    finder.add("validation", hash_sequences(_sound([PADDED, PLAIN, PLAIN])), "v pack {}".format)
    finder.add("training", hash_sequences(_sound([[[1, 2, 3], [0] * 3, [0]]])), "t pack {}".format)
    finder.add("training", hash_sequences(_sound([[[1, 2, *PLAIN[0]], [0] * 11, [0, 2]], PLAIN])), "t pack {}".format)
    [shared] = finder.shared_sequences()
    assert (shared.split, shared.other) == ("validation", "training")
    assert (shared.num_sequences, shared.num_distinct) == (1, 3)
    assert shared.where == "t pack 0, sequence 1"
    assert shared.share == "1 of 3 distinct sequences of validation"


@pytest.mark.parametrize(
    ("ids", "mask", "name", "expected"),
    [
        pytest.param([11, 12, 13, 14, 15, 2, 2, 2], [0] * 8, "max_alignment_tokens", 2, id="padding stops at a start"),
        pytest.param([2] * 4, [0] * 4, "num_fully_trained", 0, id="EOS alone is not fully trained"),
        pytest.param([2, 11, 12, 13, 14], [0, *[1] * 4], "num_trained_eos", 0, id="EOS at the beginning is no label"),
        pytest.param([11, 12, 7, 7, 7], [0, 1, 0, 0, 0], "repeated_tails", {7: 1}, id="repeated tail"),
        pytest.param([11, 8, 8], [0, 0, 0], "repeated_tails", {8: 1}, id="shortest repeated tail"),
        pytest.param([11, 12, 2, 2, 2], [0, 1, 0, 0, 0], "repeated_tails", {}, id="EOS is no repeated tail"),
        pytest.param([11, 12, 13, 9, 9], [0, 0, 1, 0, 0], "repeated_tails", {}, id="the first of a tail is trained"),
        pytest.param([11, 12, 13, 9, 9], [0, 0, 0, 1, 0], "repeated_tails", {}, id="the last of a tail is trained"),
    ],
)
def test_edges_of_totals(ids: list[int], mask: list[int], name: str, expected: Any) -> None:
    assert getattr(_truth([[ids, mask, [0, 5] if len(ids) > 5 else [0]]]), name) == expected
    assert not getattr(SplitTruth(), name)


def test_blind_rows_are_those_of_the_reference_formula() -> None:
    blind = [_is_blind(row, size=8, eos=2) for row in EVERY]
    assert [_truth([row]).num_blind_rows for row in EVERY] == blind
    assert _truth(EVERY).num_blind_rows == sum(blind) > 0
    assert _truth(EVERY, CheckContext(packed_sequence_size=8)).num_blind_rows == 0


def test_trained_labels_that_the_host_clears_are_not_effective() -> None:
    truth = _truth([SHORT_UNPADDED, SHORT_TRAINS_EOS_INPUT])
    assert (truth.num_trained_tokens, truth.num_after_eos) == (2, 1)
    assert truth.min_effective_tokens_per_row == 0


@pytest.mark.parametrize("kind", [np.uint8, np.uint32, np.uint64, np.int64])
def test_unsigned_starts_do_not_wrap(kind: type[np.generic]) -> None:
    batch = row_batch([[[11, 12, 13, 2], [0, 1, 1, 0], [0, 3, 1]]])
    assert rows_of(replace(batch, seq_start_id=batch.seq_start_id.astype(kind)), CONTEXT).gaps.tolist() == [3, -2, 3]


def test_fractions_and_nan_train_nothing() -> None:
    rows = _sound([[[11, 12, 13, 14, 15, 2], [0.5, float("nan"), -0.5, 1.5, 1.0, 0.0], [0]]])
    assert (rows.has_binary_mask, rows.is_trained.tolist()) == (False, [0, 0, 0, 1, 1, 0])


def _is_blind(row: Row, *, size: int, eos: int) -> bool:
    """Return `padded[:-1] == logical[:-1] and padded[-1] != logical[-1]`, one token after the other."""
    ids, _, starts = row
    logical, padded = [0], [0]
    for start, end in zip(starts, [*starts[1:], len(ids)], strict=True):
        inputs = ids[start : end - 1]
        padded.append(padded[-1] + len(inputs))
        while inputs and inputs[-1] == eos:
            inputs = inputs[:-1]
        logical.append(logical[-1] + len(inputs))
    if padded[-1] != size:
        padded.append(size)
        logical.append(logical[-1])
    return padded[:-1] == logical[:-1] and padded[-1] != logical[-1]
