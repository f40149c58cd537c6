"""Plans by hand: which sequence lies in which pack."""

import numpy as np
import pytest

from bridgepack.data.packing.order import seeded_hash, seeded_order
from bridgepack.data.packing.plan import ALGORITHMS, plan_packs
from bridgepack.records import PackPlan


def _plan(lengths: list[int], size: int, **options: object) -> PackPlan:
    return plan_packs(np.array(lengths, dtype=np.int64), packed_sequence_size=size, **options)  # type: ignore[arg-type]


def _lengths(lengths: list[int], plan: PackPlan) -> list[list[int]]:
    """Return the lengths in each pack, packs sorted."""
    return sorted([lengths[index] for index in plan.pack(pack)] for pack in range(plan.num_packs))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    ("lengths", "packs"),
    [
        ([10], [[10]]),
        ([4, 6], [[6, 4]]),
        ([6, 6], [[6], [6]]),
        ([2, 2, 2, 2, 2], [[2, 2, 2, 2, 2]]),
        ([3, 3, 3, 3], [[3], [3, 3, 3]]),
    ],
)
def test_plan_that_every_algorithm_finds(algorithm: str, lengths: list[int], packs: list[list[int]]) -> None:
    found = _lengths(lengths, _plan(lengths, 10, algorithm=algorithm))

    assert [sorted(pack) for pack in found] == sorted(sorted(pack) for pack in packs)


def test_best_fit_takes_the_fullest_pack() -> None:
    lengths = [5, 6, 5, 4, 4]

    assert _lengths(lengths, _plan(lengths, 10, algorithm="best_fit_decreasing")) == [[4], [5, 5], [6, 4]]


def test_packs_hold_the_longest_sequence_first() -> None:
    plan = _plan([1, 5, 3, 1], 10)

    assert [int(length) for length in np.array([1, 5, 3, 1])[plan.pack(0)]] == [5, 3, 1, 1]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_seed_chooses_among_equals(algorithm: str) -> None:
    plans = [_plan([4] * 40, 10, algorithm=algorithm, seed=seed).sequence_order.tolist() for seed in (1, 1, 2)]

    assert plans[0] == plans[1] != plans[2]


def test_order_and_hash_are_the_same_for_ever() -> None:
    first_of_splitmix64 = 0xE220A8397B1DCDAF
    assert seeded_hash(np.zeros(1, dtype=np.uint64), 0).tolist() == [first_of_splitmix64]
    assert seeded_order(8, 1234).tolist() == [6, 4, 7, 1, 2, 0, 5, 3]
