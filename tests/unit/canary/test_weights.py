"""Ranks get parts of the same weights, and their gradients are put together again."""

import numpy as np
import pytest

from bridgepack.canary.weights import EMBEDDING, drawn, global_name, interleaved_parts, merged, part_of, whole_shape


@pytest.mark.parametrize(("dimension", "interleaved"), [(0, 1), (1, 1), (0, 2), (-1, 1)])
@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_parts_make_the_whole(dimension: int, interleaved: int, num_ranks: int) -> None:
    whole = drawn("decoder.layers.0.mlp.linear_fc1.weight", (16, 8), seed=1)

    parts = [part_of(whole, dimension, interleaved, num_ranks, rank) for rank in range(num_ranks)]

    assert np.array_equal(merged(parts, dimension, interleaved), whole)
    assert whole_shape(parts[0].shape, dimension, num_ranks) == whole.shape


def test_each_rank_of_a_gated_matrix_has_a_part_of_gate_and_value() -> None:
    whole = np.arange(4.0)

    assert part_of(whole, 0, 2, 2, 0).tolist() == [0, 2]
    assert part_of(whole, 0, 2, 2, 1).tolist() == [1, 3]
    assert merged([np.array([0.0, 2.0]), np.array([1.0, 3.0])], 0, 2).tolist() == [0, 1, 2, 3]


def test_only_gated_first_matrices_are_interleaved() -> None:
    name = "decoder.layers.3.mlp.experts.local_experts.1.linear_fc1.weight"

    assert interleaved_parts(name, is_gated=True) == 2
    assert interleaved_parts(name, is_gated=False) == 1
    assert interleaved_parts(name.replace("fc1", "fc2"), is_gated=True) == 1


def test_names_are_those_of_the_whole_model() -> None:
    tied = {"has_tied_embeddings": True}

    assert global_name("module.decoder.layers.1.mlp.w", first_layer=4, **tied) == "decoder.layers.5.mlp.w"
    assert global_name("module.module.decoder.final.w", first_layer=4, **tied) == "decoder.final.w"
    assert global_name("output_layer.weight", first_layer=4, **tied) == EMBEDDING
    assert global_name("output_layer.weight", first_layer=4, has_tied_embeddings=False) == "output_layer.weight"


def test_weights_follow_from_name_and_seed() -> None:
    first = drawn("a.weight", (4, 3), seed=1)

    assert np.array_equal(first, drawn("a.weight", (4, 3), seed=1))
    assert not np.array_equal(first, drawn("b.weight", (4, 3), seed=1))
    assert not np.array_equal(first, drawn("a.weight", (4, 3), seed=2))
    assert np.array_equal(first, first.astype(np.float32).astype(np.float64))
    assert abs(drawn("input_layernorm.weight", (500,), seed=1).mean() - 1) < 0.1
    assert abs(drawn("linear_qkv.layer_norm_weight", (500,), seed=1).mean() - 1) < 0.1
