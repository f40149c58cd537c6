"""The time of a step over pipeline stages: by hand, and against a simulation that runs one pass after another."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridgepack.data.packing.balance import straggler_ratios
from bridgepack.data.packing.pipeline import step_times

BACKWARD = 2


def passes_of(stage: int, num_stages: int, num_packs: int) -> list[tuple[str, int]]:
    """Return the passes of a stage in their order."""
    warm = min(num_stages - stage - 1, num_packs)
    passes = [("forward", pack) for pack in range(warm)]
    for pack in range(warm, num_packs):
        passes += [("forward", pack), ("backward", pack - warm)]
    return passes + [("backward", pack) for pack in range(num_packs - warm, num_packs)]


def simulated(costs: list[int], num_stages: int) -> int:
    """Return when the last pass ends; every pass begins when its stage is free and its input has come."""
    left = [passes_of(stage, num_stages, len(costs)) for stage in range(num_stages)]
    free, done = [0] * num_stages, dict[tuple[str, int, int], int]()
    while any(left):
        for stage, passes in enumerate(left):
            while passes:
                kind, pack = passes[0]
                if kind == "forward":
                    source = ("forward", stage - 1, pack) if stage else None
                else:
                    source = ("backward", stage + 1, pack) if stage + 1 < num_stages else ("forward", stage, pack)
                if source is not None and source not in done:
                    break
                came = done[source] if source else 0
                free[stage] = max(free[stage], came) + costs[pack] * (BACKWARD if kind == "backward" else 1)
                done[kind, stage, pack] = free[stage]
                passes.pop(0)
    return max(free)


@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 3), st.integers(1, 20), st.integers(0, 2**32))
def test_times_are_those_of_a_simulation(
    num_stages: int, num_steps: int, num_ranks: int, num_packs: int, seed: int
) -> None:
    costs = np.random.default_rng(seed).integers(1, 1000, (num_steps, num_ranks, num_packs))

    times = step_times(costs, num_stages)

    expected = [[simulated(rank.tolist(), num_stages) / (1 + BACKWARD) for rank in step] for step in costs]
    np.testing.assert_allclose(times, expected, rtol=1e-12)


def test_times_by_hand() -> None:
    # packs of 1 and 3 on 2 stages: stage 1 has F0 at 1-2, B0 2-4, F1 4-7, B1 7-13; stage 0 has B1 at 13-19
    # packs of 3 and 1: stage 1 has F0 at 3-6, B0 6-12, F1 12-13, B1 13-15; stage 0 has B0 at 12-18, B1 18-20
    costs = np.array([[[1, 1], [1, 3], [3, 1]]])

    assert step_times(costs, 1)[0].tolist() == [2, 4, 4]
    assert (3 * step_times(costs, 2)[0]).tolist() == [9, 19, 20]
    assert step_times(np.ones((1, 1, 5)), 4)[0].tolist() == [8]


@pytest.mark.parametrize(
    ("num_stages", "has_experts", "expected"),
    [
        (1, False, 4 / 4),  # both ranks have 4
        (1, True, 6 / 4),  # 3 beside 1, then 1 beside 3
        (2, False, (20 / 3) / 6),  # three packs of 2 take 6; the rank that begins with 3 is the slower one
        (2, True, 9 / 6),  # as packs of 3 on one rank
    ],
)
def test_ratios_by_hand(num_stages: int, has_experts: bool, expected: float) -> None:
    costs, slots = np.array([3, 1, 1, 3]), np.array([[[0, 1], [2, 3]]])

    found = straggler_ratios(costs, slots, num_stages=num_stages, has_experts=has_experts)

    assert found.tolist() == pytest.approx([expected])


def test_a_step_of_cheap_ends_beats_one_of_mean_packs() -> None:
    costs = np.array([6, 4])

    # stage 1: F0 6-12, B0 12-24, F1 24-28, B1 28-36; stage 0: B0 24-36, B1 36-44; mean packs take 15 * 3 = 45
    assert straggler_ratios(costs, np.array([[[0, 1]]]), num_stages=2).tolist() == pytest.approx([44 / 45])
