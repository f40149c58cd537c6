"""Ranks get parts of the same weights, and their gradients are put together again."""

import numpy as np
import pytest

from bridgepack.canary.weights import drawn, merged, part_of, whole_shape


@pytest.mark.parametrize(("dimension", "interleaved"), [(0, 1), (1, 1), (0, 2), (-1, 1)])
@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_parts_make_the_whole(dimension: int, interleaved: int, num_ranks: int) -> None:
    whole = drawn("decoder.layers.0.mlp.linear_fc1.weight", (16, 8), seed=1)

    parts = [part_of(whole, dimension, interleaved, num_ranks, rank) for rank in range(num_ranks)]

    assert np.array_equal(merged(parts, dimension, interleaved), whole)
    assert whole_shape(parts[0].shape, dimension, num_ranks) == whole.shape


def test_weights_follow_from_name_and_seed() -> None:
    first = drawn("a.weight", (4, 3), seed=1)

    assert np.array_equal(first, drawn("a.weight", (4, 3), seed=1))
    assert not np.array_equal(first, drawn("b.weight", (4, 3), seed=1))
    assert not np.array_equal(first, drawn("a.weight", (4, 3), seed=2))
    assert np.array_equal(first, first.astype(np.float32).astype(np.float64))
    assert abs(drawn("input_layernorm.weight", (500,), seed=1).mean() - 1) < 0.1
    assert abs(drawn("linear_qkv.layer_norm_weight", (500,), seed=1).mean() - 1) < 0.1
