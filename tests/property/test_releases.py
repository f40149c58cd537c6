"""The batches of two releases differ where a release does otherwise, and nowhere else."""

from dataclasses import fields, replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bridgepack.host import V06, V07
from bridgepack.records import PackedRow
from bridgepack.replay.collate import CollateSettings, HostBatch, predict_batch
from tests.support.examples import examples
from tests.support.packed_rows import EOS_TOKEN_ID, packed_rows

SIZE = 48


def _batches(rows: list[PackedRow], multiple: int, *, is_wide: bool) -> tuple[HostBatch, HostBatch]:
    """Return what 0.6 and 0.7 make of the rows."""
    older, newer = (
        CollateSettings(
            release=release,
            packed_sequence_size=SIZE,
            pad_seq_to_mult=multiple,
            eos_token_id=EOS_TOKEN_ID,
            pad_to_max_length=is_wide,
        )
        for release in (V06, V07)
    )
    return predict_batch(rows, older), predict_batch(rows, newer)


def _without_labels_after_eos(row: PackedRow) -> PackedRow:
    return replace(row, loss_mask=np.where(row.input_ids == EOS_TOKEN_ID, 0, row.loss_mask))


DRAWN = st.sampled_from((1, 4, 8)).flatmap(
    lambda multiple: st.tuples(
        st.just(multiple),
        st.lists(packed_rows(packed_sequence_size=SIZE, pad_seq_to_mult=multiple), min_size=1, max_size=3),
    )
)


@given(DRAWN, st.booleans())
@examples(0.6)
def test_batches_differ_in_labels_after_an_eos_and_in_the_padding_mask(
    drawn: tuple[int, list[PackedRow]], is_wide: bool
) -> None:
    multiple, rows = drawn
    older, newer = _batches(rows, multiple, is_wide=is_wide)

    differing = {"loss_mask", "padding_mask"}
    for name in {field.name for field in fields(HostBatch)} - differing:
        np.testing.assert_array_equal(getattr(older, name), getattr(newer, name), err_msg=name)
    assert older.padding_mask is None
    assert newer.padding_mask is not None
    assert (newer.padding_mask.dtype, newer.padding_mask.shape) == (np.bool_, newer.tokens.shape)
    assert (newer.tokens[newer.padding_mask] == EOS_TOKEN_ID).all()
    changed = older.loss_mask != newer.loss_mask
    assert (newer.tokens[changed] == EOS_TOKEN_ID).all()
    assert (newer.loss_mask >= older.loss_mask).all()


@given(DRAWN, st.booleans())
@examples(0.6)
def test_masks_are_equal_if_no_label_after_an_eos_is_trained(drawn: tuple[int, list[PackedRow]], is_wide: bool) -> None:
    multiple, rows = drawn
    older, newer = _batches([_without_labels_after_eos(row) for row in rows], multiple, is_wide=is_wide)

    np.testing.assert_array_equal(older.loss_mask, newer.loss_mask)


def test_the_masks_of_one_row_by_hand() -> None:
    """Two documents in one sequence, then one of two tokens, each padded with EOS to a multiple of 4."""
    row = PackedRow(
        input_ids=np.array([5, EOS_TOKEN_ID, 6, EOS_TOKEN_ID, EOS_TOKEN_ID, 7, 8, *[EOS_TOKEN_ID] * 3], dtype=np.int32),
        loss_mask=np.array([1, 1, 1, 0, 0, 1, 1, 0, 0, 0], dtype=np.int8),
        seq_start_id=np.array([0, 5], dtype=np.int32),
    )
    older, newer = _batches([row], 4, is_wide=False)

    assert older.loss_mask[0, :8].tolist() == [1, 0, 1, 0, 1, 1, 0, 0]
    assert newer.loss_mask[0, :8].tolist() == [1, 1, 1, 0, 1, 1, 0, 0]
    assert newer.padding_mask is not None
    assert newer.padding_mask[0].tolist() == [False] * 3 + [True] + [False] * 2 + [True] * 10
