"""Totals over rows, and sequences shared by splits, on rows anyone can count."""

from __future__ import annotations

from bridgepack.rules import CheckContext
from bridgepack.rules.engine.overlap import OverlapFinder, hash_sequences
from bridgepack.rules.engine.rows import Rows, rows_of
from bridgepack.rules.engine.truth import SplitTruth, truth_of
from tests.unit.rules.in_memory_artifact import Row, row_batch

CONTEXT = CheckContext(packed_sequence_size=16, pad_seq_to_mult=4, eos_token_id=2)
PADDED: Row = [[11, 12, 13, 2, 2, 21, 2, 2, 2, 2], [0, 1, 1, 0, 0, 1, 0, 0, 0, 0], [0, 5]]
PLAIN: Row = [[31, 32, 33, 34, 35, 36, 37, 38, 39], [0, 0, 0, 1, 1, 1, 1, 1, 0], [0]]


def _sound(rows: list[Row], context: CheckContext = CONTEXT) -> Rows:
    return rows_of(row_batch(rows), context)


def test_totals() -> None:
    truth = truth_of(_sound([PADDED]))
    truth.merge(truth_of(_sound([PLAIN])))
    assert (truth.num_rows, truth.num_sequences, truth.num_tokens) == (2, 3, 4 + 4 + 8)
    assert truth.num_trained_tokens == 3 + 5
    assert (truth.max_runtime_length, truth.max_sequences_per_row, truth.min_row_width) == (8, 2, 8)
    assert (truth.num_misaligned_runtime, truth.num_misaligned_stored) == (0, 3)
    assert truth.num_trained_eos == 2
    assert truth.max_alignment_tokens == 1 + 3
    assert truth.num_fully_trained == 1


def test_most_padding_counts_no_trained_eos_and_fewer_than_the_multiple() -> None:
    all_eos: Row = [[11, 2, 2, 2, 2, 2, 2, 2, 2], [0] * 9, [0]]
    assert truth_of(_sound([all_eos])).max_alignment_tokens == 3


def test_totals_of_nothing() -> None:
    truth = SplitTruth()
    truth.merge(SplitTruth())
    assert (truth.num_rows, truth.min_row_width, truth.mean_row_width) == (0, 0, 0.0)


def test_hash_does_not_depend_on_the_place() -> None:
    sequence = [11, 12, 13, 2]
    alone: Row = [sequence, [0] * 4, [0]]
    later: Row = [[5, 6, 7, *sequence, 8, 9], [0] * 9, [0, 3, 7]]
    [expected] = hash_sequences(_sound([alone])).hashes
    assert hash_sequences(_sound([later, later])).hashes.tolist()[1::3] == [expected, expected]


def test_hash_tells_zeros_apart() -> None:
    rows: list[Row] = [[[0, 0], [0, 0], [0]], [[0, 0, 0], [0, 0, 0], [0]], [[0, 1], [0, 0], [0]]]
    assert len(set(hash_sequences(_sound(rows)).hashes.tolist())) == 3


def test_overlap_counts_distinct_sequences_of_the_smaller_split() -> None:
    finder = OverlapFinder(largest_split="training")
    finder.add("validation", "v", hash_sequences(_sound([PADDED, PLAIN, PLAIN])))
    finder.add("training", "t", hash_sequences(_sound([[[1, 2, 3], [0] * 3, [0]]])))
    finder.add("training", "t", hash_sequences(_sound([[[1, 2, *PLAIN[0]], [0] * 11, [0, 2]], PLAIN])))
    [shared] = finder.shared()
    assert (shared.split, shared.other) == ("validation", "training")
    assert (shared.num_sequences, shared.num_distinct) == (1, 3)
    assert shared.where == "t row 0, sequence 1"
    assert shared.found == "1 of 3 distinct sequences of validation"


def test_overlap_of_one_split_with_itself_is_none() -> None:
    finder = OverlapFinder(largest_split="training")
    finder.add("training", "t", hash_sequences(_sound([PLAIN, PLAIN])))
    assert finder.shared() == ()


def _totals(rows: list[Row]) -> SplitTruth:
    return truth_of(_sound(rows))


def test_padding_never_reaches_the_first_token_of_a_sequence() -> None:
    all_eos: Row = [[11, 12, 13, 14, 15, 2, 2, 2], [0] * 8, [0, 5]]
    assert _totals([all_eos]).max_alignment_tokens == 2


def test_a_sequence_of_eos_alone_is_not_fully_trained() -> None:
    assert _totals([[[2, 2, 2, 2], [0] * 4, [0]]]).num_fully_trained == 0


def test_eos_at_the_very_beginning_is_no_trained_label() -> None:
    assert _totals([[[2, 11, 12, 13, 14], [0, 1, 1, 1, 1], [0]]]).num_trained_eos == 0


def test_repeated_tails_are_untrained_and_not_eos() -> None:
    repeated: Row = [[11, 12, 7, 7, 7], [0, 1, 0, 0, 0], [0]]
    shortest: Row = [[11, 8, 8], [0, 0, 0], [0]]
    eos: Row = [[11, 12, 2, 2, 2], [0, 1, 0, 0, 0], [0]]
    trained_first: Row = [[11, 12, 13, 9, 9], [0, 0, 1, 0, 0], [0]]
    trained_last: Row = [[11, 12, 13, 9, 9], [0, 0, 0, 1, 0], [0]]
    totals = _totals([repeated, shortest, eos, trained_first, trained_last])
    assert dict(totals.repeated_tails) == {7: 1, 8: 1}
