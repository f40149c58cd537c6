"""Batches as readers make them: slices of larger arrays, other integer types, bool and float masks."""

from dataclasses import replace

import numpy as np
import pytest

from bridgepack.rules import CheckContext
from bridgepack.rules.engine.rows import rows_of
from tests.unit.rules.in_memory_artifact import Row, row_batch

ROWS: list[Row] = [
    [[11, 12, 13, 2, 21, 22, 2], [0, 1, 1, 0, 1, 1, 0], [0, 4]],
    [[31, 32, 2], [0, 1, 0], [0]],
    [[41, 42, 43, 44, 2], [0, 0, 1, 1, 0], [0, 3]],
]
CONTEXT = CheckContext(eos_token_id=2)


def test_offsets_need_not_begin_at_zero() -> None:
    whole = row_batch(ROWS)
    tail = replace(
        whole,
        first_row=1,
        token_offsets=whole.token_offsets[1:],
        mask_offsets=whole.mask_offsets[1:],
        start_offsets=whole.start_offsets[1:],
    )
    rows = rows_of(tail, CONTEXT)
    assert rows.numbers.tolist() == [1, 2]
    assert rows.input_ids.tolist() == [31, 32, 2, 41, 42, 43, 44, 2]
    assert rows.sequence_begin.tolist() == [0, 3, 6]


@pytest.mark.parametrize("kind", [np.uint8, np.uint32, np.uint64, np.int64])
def test_unsigned_starts_do_not_wrap(kind: type[np.generic]) -> None:
    batch = row_batch([[[11, 12, 13, 2], [0, 1, 1, 0], [0, 3, 1]]])
    raw = rows_of(replace(batch, seq_start_id=batch.seq_start_id.astype(kind)), CONTEXT)
    assert raw.gaps.tolist() == [3, -2, 3]


@pytest.mark.parametrize("kind", [np.bool_, np.uint8, np.int64, np.float32, np.float16])
def test_masks_of_zeros_and_ones_are_binary_in_any_type(kind: type[np.generic]) -> None:
    batch = row_batch(ROWS)
    rows = rows_of(replace(batch, loss_mask=batch.loss_mask.astype(kind)), CONTEXT)
    assert rows.has_binary_mask
    assert rows.is_trained.dtype == np.int8
    assert rows.trained_per_sequence.tolist() == [2, 2, 1, 1, 1]


def test_fractions_and_nan_train_nothing() -> None:
    row: Row = [[11, 12, 13, 14, 15, 2], [0.5, float("nan"), -0.5, 1.5, 1.0, 0.0], [0]]
    rows = rows_of(row_batch([row]), CONTEXT)
    assert not rows.has_binary_mask
    assert rows.is_trained.tolist() == [0, 0, 0, 1, 1, 0]
