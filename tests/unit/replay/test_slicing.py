import numpy as np
import pytest

from bridgepack.errors import ConfigError
from bridgepack.records import PackedRow
from bridgepack.replay.collate import CollateSettings, predict_batch
from bridgepack.replay.slicing import misplaced_tokens, slice_row, thd_positions

#: Two sequences, aligned to 4: runtime inputs [5 6 7 2 | 8 9 10 11], then a tail of 4.
ROW = PackedRow(
    input_ids=np.array([5, 6, 7, 2, 2, 8, 9, 10, 11, 12], dtype=np.int32),
    loss_mask=np.array([0, 1, 1, 0, 0, 0, 0, 0, 1, 0], dtype=np.int8),
    seq_start_id=np.array([0, 5], dtype=np.int32),
)
SETTINGS = CollateSettings(packed_sequence_size=12, pad_seq_to_mult=4, eos_token_id=2, pad_to_max_length=True)


@pytest.mark.parametrize(
    ("offsets", "ranks", "expected"),
    [
        ([0, 8], 2, [[0, 1, 6, 7], [2, 3, 4, 5]]),
        ([0, 4, 12], 2, [[0, 3, 4, 5, 10, 11], [1, 2, 6, 7, 8, 9]]),
        ([0, 4, 12, 12, 12], 2, [[0, 3, 4, 5, 10, 11], [1, 2, 6, 7, 8, 9]]),
        ([0, 6], 3, [[0, 5], [1, 4], [2, 3]]),
        ([0, 3], 1, [[0, 1, 2]]),
    ],
)
def test_ranks_get_chunks_from_both_ends_of_every_sequence(
    offsets: list[int], ranks: int, expected: list[list[int]]
) -> None:
    positions = thd_positions(offsets, offsets[-1], ranks)

    assert positions.tolist() == expected
    assert misplaced_tokens(positions, offsets[-1]).tolist() == []


def test_sequences_that_do_not_divide_lose_tokens() -> None:
    positions = thd_positions([0, 6, 12], 12, 2)

    assert positions.tolist() == [[0, 3, 4, 6, 9, 10], [1, 2, 3, 7, 8, 9]]
    assert misplaced_tokens(positions, 12).tolist() == [3, 5, 9, 11]


def test_offsets_filled_up_with_minus_one_can_lose_the_whole_row() -> None:
    """The bisection wants ascending offsets."""
    assert misplaced_tokens(thd_positions([0, 4, -1, -1], 4, 2), 4).tolist() == [0, 1, 2, 3]
    assert misplaced_tokens(thd_positions([0, 4, 12, -1, -1], 12, 2), 12).tolist() == []


def test_slices_of_a_row() -> None:
    slices = slice_row(predict_batch([ROW], SETTINGS), 0, 2)

    assert slices.positions.tolist() == [[0, 3, 4, 7, 8, 11], [1, 2, 5, 6, 9, 10]]
    assert slices.tokens.tolist() == [[5, 2, 8, 11, 2, 2], [6, 7, 9, 10, 2, 2]]
    assert slices.labels.tolist() == [[6, 2, 9, 12, 2, 2], [7, 2, 10, 11, 2, 2]]
    assert slices.position_ids.tolist() == [[0, 3, 0, 3, 0, 0], [1, 2, 1, 2, 0, 0]]
    assert slices.trained_tokens.tolist() == [1, 2]


def test_one_rank_gets_the_row_as_it_is() -> None:
    batch = predict_batch([ROW], SETTINGS)

    assert slice_row(batch, 0, 1).tokens[0].tolist() == batch.tokens[0].tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: thd_positions([0], 4, 2), "cu_seqlens has 1 entries; allowed: at least 2"),
        (lambda: thd_positions([0, 4], 4, 0), "context_parallel_size is 0; allowed: whole numbers from 1"),
    ],
)
def test_what_cannot_be_cut(call: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()  # type: ignore[operator]
