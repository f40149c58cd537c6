"""Packs, their metadata and the weights as a layout trains them, by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bridgepack.canaries import faults
from bridgepack.canaries.inputs import PackedInput, draw_weights, merge_parts, packed_input, part_of, whole_shape
from bridgepack.canaries.packs import chosen_packs
from bridgepack.canaries.records import topology_of
from bridgepack.geometry import runtime_segment_lengths
from bridgepack.host import TARGET
from bridgepack.records import PackedRow
from bridgepack.replay.settings import Topology
from tests.support.canaries import FACTS, packed_row

#: Sequences of 3 and 6 runtime tokens.
ROW = packed_row(range(5, 16), [1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 0], [0, 4])
ENTRIES = ({"max_samples_per_bin": 2, "dataset_max_seqlen": 6, "min_packed_seqlen": 9},)
FIXED = replace(FACTS, pad_cu_seqlens=True)


def _input(layout: Topology, *, row: PackedRow = ROW, facts: Any = FIXED, max_tokens: int = 64, **options: Any) -> Any:
    chosen = chosen_packs({0: row}, eos_token_id=2, max_tokens=max_tokens, release=TARGET)
    defaults: dict[str, Any] = {"entries": ENTRIES, "pad_seq_to_mult": 1, "keeps_boundaries": False}
    return packed_input(chosen, layout, facts, **{**defaults, **options})


def _lengths(packs: PackedInput) -> list[int]:
    (row,) = packs.rows
    return runtime_segment_lengths(row.seq_start_id.astype(np.int64), len(row.input_ids)).tolist()


def test_packs_that_do_not_fit_are_padded_with_their_metadata() -> None:
    packs = _input(topology_of(context=2))

    assert _lengths(packs) == [4, 8]
    assert packs.is_laid_out_anew
    assert packs.entries == ({"max_samples_per_bin": 2, "dataset_max_seqlen": 8, "min_packed_seqlen": 12},)
    assert packs.settings.pad_seq_to_mult == 4


def test_a_cut_pack_is_emptier_than_the_metadata_says() -> None:
    packs = _input(topology_of(), max_tokens=4)

    assert _lengths(packs) == [2, 2]
    assert packs.entries == ({"max_samples_per_bin": 2, "dataset_max_seqlen": 6, "min_packed_seqlen": 4},)


def test_lengths_that_fit_by_chance_are_made_wrong() -> None:
    """Both sequences have 4 tokens; the last one loses one."""
    row = packed_row(range(5, 15), [1, 1, 1, 1, 0] * 2, [0, 5])
    packs = _input(topology_of(context=2), row=row, facts=FACTS, pad_seq_to_mult=4, fault=faults.WRONG_MULTIPLE)

    assert _lengths(packs) == [4, 3]


@pytest.mark.parametrize(("dimension", "interleaved"), [(0, 1), (1, 1), (0, 2), (-1, 1)])
@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_parts_make_the_whole(dimension: int, interleaved: int, num_ranks: int) -> None:
    whole = draw_weights("decoder.layers.0.mlp.linear_fc1.weight", (16, 8), seed=1)

    parts = [part_of(whole, dimension, interleaved, num_ranks, rank) for rank in range(num_ranks)]

    assert np.array_equal(merge_parts(parts, dimension, interleaved), whole)
    assert whole_shape(parts[0].shape, dimension, num_ranks) == whole.shape


def test_weights_follow_from_name_and_seed() -> None:
    first = draw_weights("a.weight", (4, 3), seed=1)

    assert np.array_equal(first, draw_weights("a.weight", (4, 3), seed=1))
    assert not np.array_equal(first, draw_weights("b.weight", (4, 3), seed=1))
    assert not np.array_equal(first, draw_weights("a.weight", (4, 3), seed=2))
    assert np.array_equal(first, first.astype(np.float32).astype(np.float64))
    assert abs(draw_weights("input_layernorm.weight", (500,), seed=1).mean() - 1) < 0.1
    assert abs(draw_weights("linear_qkv.layer_norm_weight", (500,), seed=1).mean() - 1) < 0.1
