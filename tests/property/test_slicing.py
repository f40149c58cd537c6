import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bridgepack.geometry import cu_seqlens
from bridgepack.host import TARGET
from bridgepack.records import PackedRow
from bridgepack.replay.collate import CollateSettings, predict_batch
from bridgepack.replay.slicing import misplaced_tokens, slice_row, thd_positions
from tests.support.examples import examples
from tests.support.kernel_slices import positions_on_rank
from tests.support.packed_rows import EOS_TOKEN_ID, packed_rows

RANKS = st.sampled_from((1, 2, 3, 4, 8))
SIZE = 96


@given(st.lists(st.integers(0, 30), min_size=1, max_size=12), RANKS, st.integers(0, 4), st.booleans())
@examples(1)
def test_any_offsets_are_cut_as_the_kernel_cuts_them(
    lengths: list[int], ranks: int, num_filled: int, is_aligned: bool
) -> None:
    offsets = cu_seqlens(np.array(lengths) * (2 * ranks if is_aligned else 1)).tolist()
    filled = offsets + [offsets[-1] if is_aligned else -1] * num_filled
    positions = thd_positions(filled, offsets[-1], ranks)

    for rank in range(ranks):
        expected = positions_on_rank(filled, offsets[-1], context_parallel_size=ranks, rank=rank)
        assert positions[rank].tolist() == expected


@given(
    st.sampled_from((1, 2, 4)).flatmap(
        lambda ranks: st.tuples(
            st.just(ranks), st.lists(packed_rows(packed_sequence_size=SIZE, pad_seq_to_mult=8), min_size=1, max_size=4)
        )
    )
)
@examples(0.4)
def test_slices_hold_the_whole_row(drawn: tuple[int, list[PackedRow]]) -> None:
    ranks, rows = drawn
    collate = CollateSettings(
        release=TARGET, packed_sequence_size=SIZE, pad_seq_to_mult=8, eos_token_id=EOS_TOKEN_ID, pad_to_max_length=True
    )
    batch = predict_batch(rows, collate)
    num_trained_tokens = 0
    for index in range(len(rows)):
        slices = slice_row(batch, index, ranks)
        num_trained_tokens += int(slices.trained_tokens.sum())
        order = np.argsort(slices.positions, axis=None)
        for name in ("tokens", "labels", "loss_mask", "position_ids"):
            assert getattr(slices, name).reshape(-1)[order].tolist() == getattr(batch, name)[index].tolist()
        assert misplaced_tokens(slices.positions, batch.tokens.shape[1]).tolist() == []
    assert num_trained_tokens == batch.loss_mask.sum()
