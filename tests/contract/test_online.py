"""What a plan says of packing at run time is what megatron-core's own schedulers make of the sequences."""

import importlib

import numpy as np
import pytest

from bridgepack.bridge.dynamic_context import dynamic_groups
from bridgepack.planning.online import packs_in_order

pytestmark = pytest.mark.bridge


def _drawn(count: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).lognormal(5.5, 1.0, count).clip(8, 4000).astype(int).tolist()


def test_dp_balanced_makes_the_same_packs(host: None) -> None:
    module = importlib.import_module("megatron.core.datasets.data_schedule")
    if not hasattr(module, "DpBalancedScheduler"):
        pytest.skip("this megatron-core has no DpBalancedScheduler; run over one that has (scripts/test --megatron)")
    num_compared = 0
    for seed in range(200):
        ranks, context, per_round = (1, 2, 4, 8)[seed % 4], 1 + seed % 2, (None, 2)[seed // 100]
        lengths = _drawn(64 + seed, seed)
        scheduler = module.DpBalancedScheduler(4096 // context, context, ranks, per_round)
        groups = scheduler.get_groups_and_subsamples(list(enumerate(lengths)))
        packs = packs_in_order(lengths, capacity=4096 // context * context, multiple=ranks * (per_round or 1))
        assert [group[rank * context] for group in groups for rank in range(ranks)] == packs
        num_compared += len(packs)
    assert num_compared > 2000


def test_dynamic_context_parallelism_takes_every_sequence(host: None) -> None:
    for seed in range(20):
        lengths = _drawn(64, seed)
        groups = dynamic_groups(lengths, 1024, 8)
        ranks_of = [sum(index in rank for group in groups for rank in group) for index in range(len(lengths))]

        assert all(len(group) == 8 for group in groups)
        assert all(count * 1024 >= length for count, length in zip(ranks_of, lengths, strict=True))
        assert all(count & (count - 1) == 0 for count in ranks_of)  # groups of ranks are powers of two
