"""Bounds grow with the chain of roundings, by hand."""

import math

import pytest

from bridgepack.canary.comparing import Sizes, bound_for, chain_length

MODEL = {
    "num_layers": 2,
    "hidden_size": 8,
    "ffn_hidden_size": 16,
    "num_attention_heads": 2,
    "num_query_groups": 1,
    "kv_channels": 4,
}
SIZES = Sizes(model=MODEL, vocab_size=32, longest_sequence=10, num_tokens=100)


def test_chain_is_counted_layer_by_layer() -> None:
    forward = 4 * 8 + 16 + 2 * 4 + 2 * 4 + 2 * 10
    backward = 4 * 8 + 2 * 16 + (2 + 2) * 4 + 4 + 3 * 10

    assert chain_length(SIZES) == 2 * (forward + backward + 40) + 2 * (8 + 32) + 100


def test_bfloat16_counts_stored_tensors() -> None:
    bound = bound_for("bfloat16", SIZES)

    assert bound.chain_length == 40
    assert bound.relative == pytest.approx(2 * 2 * math.sqrt(40) * 2**-8)


def test_experts_count_as_often_as_they_are_chosen() -> None:
    experts = {**MODEL, "moe_ffn_hidden_size": 16, "moe_router_topk": 2}

    assert chain_length(Sizes(model=experts, vocab_size=32, longest_sequence=10, num_tokens=100)) == (
        chain_length(SIZES) + 2 * 3 * 16
    )
