"""What holds for the predicted batch of any valid rows; the comparison with the real host is a contract test."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bridgepack.geometry import CU_SEQLENS_EXTRA_ENTRIES
from bridgepack.records import PackedRow
from bridgepack.replay.collate import CollateMetadata, CollateSettings, HostBatch, padding_row, predict_batch
from tests.support.packed_rows import EOS_TOKEN_ID, packed_rows

Drawn = tuple[list[PackedRow], CollateSettings]


@st.composite
def rows_and_settings(draw: st.DrawFn) -> Drawn:
    pad_seq_to_mult = draw(st.sampled_from([1, 2, 4, 8]))
    packed_sequence_size = pad_seq_to_mult * draw(st.integers(1, 12))
    row = packed_rows(packed_sequence_size=packed_sequence_size, pad_seq_to_mult=pad_seq_to_mult)
    settings = CollateSettings(
        packed_sequence_size=packed_sequence_size,
        pad_seq_to_mult=pad_seq_to_mult,
        eos_token_id=EOS_TOKEN_ID,
        pad_to_max_length=draw(st.booleans()),
        pad_seq_length_to_mult=draw(st.sampled_from([1, 16])),
    )
    return draw(st.lists(row, min_size=1, max_size=4)), settings


def _sequences(batch: HostBatch, row: int) -> list[slice]:
    """Slices of `tokens` of a row's sequences and of its tail, empty repetitions left out."""
    offsets = batch.physical_offsets[row]
    return [slice(begin, end) for begin, end in pairwise(offsets) if end > begin]


@given(drawn=rows_and_settings())
def test_sequences_of_a_batch_are_those_of_its_rows(drawn: Drawn) -> None:
    rows, settings = drawn
    batch = predict_batch(rows, settings)

    num_checked = 0
    for index, row in enumerate(rows):
        stored = np.split(row.input_ids, row.seq_start_id[1:])
        lengths = np.diff(batch.cu_seqlens[index])
        for sequence, length, place in zip(stored, lengths, _sequences(batch, index), strict=False):
            tokens, labels = batch.tokens[index, place].tolist(), batch.labels[index, place].tolist()
            assert [*tokens, labels[-1]] == sequence.tolist()
            assert labels[:-1] == tokens[1:]
            assert batch.position_ids[index, place].tolist() == list(range(len(tokens)))
            if settings.pad_seq_to_mult > 1:
                content = [position for position, token in enumerate(tokens) if token != EOS_TOKEN_ID]
                assert length == (content[-1] + 1 if content else 0)
            num_checked += 1
        tail = slice(int(batch.token_count[index]), None)
        assert {*batch.tokens[index, tail].tolist(), *batch.labels[index, tail].tolist()} <= {EOS_TOKEN_ID}
        assert not batch.loss_mask[index, tail].any()
        assert not batch.position_ids[index, tail].any()
    assert num_checked == sum(len(row.seq_start_id) for row in rows)
    assert not batch.loss_mask[batch.tokens == EOS_TOKEN_ID].any()


@given(drawn=rows_and_settings())
def test_offsets_ascend_from_0_and_physical_ones_end_at_the_width(drawn: Drawn) -> None:
    rows, settings = drawn
    batch = predict_batch(rows, settings)

    assert batch.physical_offsets.shape == batch.cu_seqlens.shape
    for offsets in (batch.physical_offsets, batch.cu_seqlens):
        assert not offsets[:, 0].any()
        assert (np.diff(offsets, axis=1) >= 0).all()
    assert (batch.physical_offsets[:, -1] == batch.tokens.shape[1]).all()
    assert (np.diff(batch.cu_seqlens, axis=1) <= np.diff(batch.physical_offsets, axis=1)).all()
    assert not (batch.physical_offsets[:, :-1] % settings.pad_seq_to_mult).any()
    assert batch.max_seqlen.tolist() == np.diff(batch.physical_offsets, axis=1).max(axis=1)[:, None].tolist()


@given(drawn=rows_and_settings())
def test_row_s_batch_does_not_depend_on_its_neighbours(drawn: Drawn) -> None:
    rows, settings = drawn
    together = predict_batch(rows, settings)
    width = together.tokens.shape[1]

    num_checked = 0
    for index, row in enumerate(rows):
        alone = predict_batch([row], settings)
        num_tokens = int(alone.token_count[0])
        for name in ("tokens", "labels", "loss_mask", "position_ids"):
            assert getattr(together, name)[index, :num_tokens].tolist() == getattr(alone, name)[0, :num_tokens].tolist()
            num_checked += 1
        if alone.tokens.shape[1] == width:
            num_boundaries = alone.cu_seqlens.shape[1]
            assert together.cu_seqlens[index, :num_boundaries].tolist() == alone.cu_seqlens[0].tolist()
            assert (together.cu_seqlens[index, num_boundaries:] == alone.cu_seqlens[0, -1]).all()
    assert num_checked == 4 * len(rows)


@given(drawn=rows_and_settings())
def test_true_metadata_makes_every_shape_static(drawn: Drawn) -> None:
    rows, settings = drawn
    lengths = [np.diff([*row.seq_start_id, len(row.input_ids)]) - 1 for row in rows]
    metadata = CollateMetadata(
        max_samples_per_bin=max(map(len, lengths)),
        dataset_max_seqlen=max(int(row_lengths.max()) for row_lengths in lengths),
        min_packed_seqlen=min(int(row_lengths.sum()) for row_lengths in lengths),
    )
    settings = replace(settings, pad_to_max_length=True, pad_cu_seqlens=True, metadata=metadata)

    batches = [predict_batch([row], settings) for row in rows]

    num_boundaries = metadata.max_samples_per_bin + CU_SEQLENS_EXTRA_ENTRIES
    assert {batch.cu_seqlens.shape for batch in batches} == {(1, num_boundaries)}
    assert len({int(batch.max_seqlen[0]) for batch in batches}) == 1
    longest = max(int(np.diff(batch.physical_offsets).max()) for batch in batches)
    assert batches[0].max_seqlen[0] >= longest


@given(drawn=rows_and_settings())
def test_padding_row_differs_in_its_loss_mask_only(drawn: Drawn) -> None:
    rows, settings = drawn
    batch = predict_batch(rows, settings)
    padding = predict_batch([padding_row(row) for row in rows], settings)

    assert not padding.loss_mask.any()
    for name in ("tokens", "labels", "cu_seqlens", "max_seqlen"):
        assert getattr(padding, name).tolist() == getattr(batch, name).tolist()
