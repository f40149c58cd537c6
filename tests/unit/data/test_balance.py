"""The order of packs: what it keeps, how even it makes steps, and what it costs by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripts.bench.balance import RUN, costs_of, mixture

from bridgepack.data.packing.balance import balance_plan, balanced_order, pack_costs, slots_of, straggler_ratios
from bridgepack.data.packing.plan import plan_packs
from bridgepack.errors import ConfigError

_ORDERS = ("matches_micro_batches", "begins_cheap")


@pytest.mark.parametrize(
    ("size", "batch", "window", "most"),
    [(131_072, 128, 1, 1.03), (32_768, 128, 1, 1.01), (131_072, 32, 16, 1.05), (32_768, 32, 16, 1.02)],
)
def test_ranks_cost_the_same(size: int, batch: int, window: int, most: float) -> None:
    lengths = mixture(size, 300_000)
    plan = plan_packs(lengths, packed_sequence_size=size)
    balance = replace(RUN, window_batches=window, global_batch_size=batch)
    slots = slots_of(balance, plan.num_packs)

    before = straggler_ratios(costs_of(plan, lengths), slots)
    after = straggler_ratios(costs_of(balance_plan(plan, lengths, balance, has_tail=True), lengths), slots)

    assert before.mean() > 1.15
    assert after.mean() <= most
    assert len(after) == plan.num_packs // batch


cases = st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 12), st.integers(0, 9), st.integers(0, 2**32))


@given(cases, st.integers(1, 5), st.booleans())
def test_packs_stay_in_windows_and_steps_even(case: tuple[int, int, int, int, int], window: int, matches: bool) -> None:
    num_ranks, num_packs, num_steps, num_left, seed = case
    rng = np.random.default_rng(seed)
    num_read = num_ranks * num_packs * num_steps
    costs = rng.integers(1, 10 ** int(rng.integers(1, 12)), num_read + num_left)
    slots = rng.permutation(len(costs))[:num_read].reshape(num_steps, num_ranks, num_packs)

    order = balanced_order(costs, slots, window_batches=window, seed=seed, **dict.fromkeys(_ORDERS, matches))

    for first in range(0, num_steps, window):
        packs = slots[first : first + window].ravel()
        assert sorted(order[packs]) == sorted(packs)
    left = np.setdiff1d(np.arange(len(costs)), slots)
    assert (order[left] == left).all()
    if window == 1 and not matches:
        after = costs[order][slots].sum(axis=2)
        # Graham's bound for the longest first, loosened for ranks that hold equally many packs.
        spread = costs[slots].max(axis=(1, 2)) - costs[slots].min(axis=(1, 2))
        assert (after.max(axis=1) - after.min(axis=1) <= spread).all()


def test_seeds_order_the_steps_of_a_window_alone() -> None:
    costs = np.arange(1, 65)
    slots = np.arange(64).reshape(16, 4, 1)
    orders = [balanced_order(costs, slots, window_batches=8, seed=seed) for seed in (1, 1, 2)]

    steps = [sorted(map(tuple, costs[order].reshape(2, 8, 4)[0].tolist())) for order in orders]

    assert (orders[0] == orders[1]).all()
    assert (orders[0] != orders[2]).any()
    assert [sorted(map(sorted, found)) for found in steps[:1]] == [[list(range(n, n + 4)) for n in range(1, 33, 4)]]
    assert sorted(map(sorted, steps[0])) == sorted(map(sorted, steps[2]))
    # neighbours in time are not neighbours in cost
    means = costs[orders[0]].reshape(16, 4).mean(axis=1)[:8]
    assert list(means) not in (sorted(means), sorted(means, reverse=True))


def test_micro_batches_match_where_ranks_wait_in_each() -> None:
    costs = np.array([10, 1, 9, 2, 8, 3, 7, 4])
    slots = np.arange(8).reshape(1, 2, 4)

    order, older = (
        balanced_order(costs, slots, matches_micro_batches=True, begins_cheap=begins) for begins in (True, False)
    )

    # as artifacts were balanced before packs rose first
    assert list(map(sorted, costs[older][slots][0].T.tolist())) == [[9, 10], [7, 8], [3, 4], [1, 2]]
    micro_batches = costs[order][slots][0].T
    assert list(map(sorted, micro_batches.tolist())) == [[1, 2], [7, 8], [9, 10], [3, 4]]
    assert abs(np.diff(micro_batches.sum(axis=0)))[0] == 0
    assert straggler_ratios(costs[order], slots, has_experts=True)[0] == pytest.approx(24 / 22)
    assert straggler_ratios(costs[order], slots)[0] == 1.0


@pytest.mark.parametrize(("num_stages", "most"), [(2, 1.03), (4, 1.04), (8, 1.06)])
def test_pipelines_begin_and_end_steps_with_cheap_packs(num_stages: int, most: float) -> None:
    lengths = mixture(131_072, 300_000)
    plan = plan_packs(lengths, packed_sequence_size=131_072)
    run = replace(RUN, global_batch_size=256, data_parallel_size=16, matches_micro_batches=True, begins_cheap=True)
    slots = slots_of(run, plan.num_packs)

    before = straggler_ratios(costs_of(plan, lengths), slots, num_stages=num_stages)
    costs = costs_of(balance_plan(plan, lengths, run, has_tail=True), lengths)

    assert before.mean() > 1.4
    assert straggler_ratios(costs, slots, num_stages=num_stages).mean() < most
    dearest = costs[slots].mean(axis=(0, 1))
    assert (np.diff(dearest[:8]) > 0).all()
    assert (np.diff(dearest[8:]) < 0).all()


def test_costs_by_hand() -> None:
    lengths, offsets = np.array([3, 4, 5]), np.array([0, 2, 3])
    common = {"token_cost": 10, "packed_sequence_size": 8}

    assert pack_costs(lengths, offsets, has_tail=True, **common).tolist() == [80 + 9 + 16 + 1, 80 + 25 + 9]
    assert pack_costs(lengths, offsets, has_tail=False, **common).tolist() == [105, 105]
    # half of the layers see 3 tokens back: 25 - (5 - 3)^2 / 2
    windowed = pack_costs(lengths, offsets, windows=((3, 0.5),), has_tail=False, **common)
    assert windowed.tolist() == [80 + 9 + 16 - 0, 80 + 25 - 2]


def test_fewer_packs_than_a_step_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"batch.global_batch_size is 128; allowed .* the number of packs, 20"):
        slots_of(RUN, 20)


def test_the_record_of_a_run_without_stages_is_that_of_older_artifacts() -> None:
    assert "begins_cheap" not in RUN.values()
    assert replace(RUN, begins_cheap=True).values()["begins_cheap"] is True
