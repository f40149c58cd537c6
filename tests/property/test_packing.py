"""What holds for every plan, and a slow, obvious packer that the fast ones equal."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridgepack.data.packing.order import seeded_hash, seeded_order
from bridgepack.data.packing.plan import ALGORITHMS, plan_packs
from bridgepack.records import PackPlan

Packs = list[list[int]]
SIZES = st.integers(1, 60)
CAPS = st.none() | st.integers(1, 6)
SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def lengths_and_size(draw: st.DrawFn) -> tuple[list[int], int]:
    """Draw lengths that fit; often only a few distinct ones, as alignment gives."""
    size = draw(SIZES)
    length = st.integers(1, size)
    few = draw(st.lists(length, min_size=1, max_size=4))
    return draw(st.lists(st.sampled_from(few) | length, max_size=60)), size


def _plan(lengths: Sequence[int], size: int, algorithm: str, cap: int | None, seed: int) -> PackPlan:
    values = np.array(lengths, dtype=np.int64)
    return plan_packs(values, packed_sequence_size=size, algorithm=algorithm, max_sequences_per_pack=cap, seed=seed)


def _packs(lengths: Sequence[int], plan: PackPlan) -> Packs:
    return [[lengths[index] for index in plan.pack(pack)] for pack in range(plan.num_packs)]


def _pack_slowly(lengths: Sequence[int], size: int, cap: int | None, *, is_best_fit: bool) -> Packs:
    """Return packs: the sequences in their order, each into the fullest or the first pack with room for it."""
    packs: Packs = []
    for length in lengths:
        fitting = [pack for pack in packs if sum(pack) + length <= size and len(pack) < (cap or len(lengths))]
        if not fitting:
            packs.append([length])
        elif is_best_fit:
            min(fitting, key=lambda pack: (size - sum(pack), len(pack))).append(length)
        else:
            fitting[0].append(length)
    return packs


def _pack_in_order(lengths: Sequence[int], size: int, cap: int | None) -> Packs:
    """Return packs of neighbours: a sequence goes into the last pack or begins one."""
    packs: Packs = []
    for length in lengths:
        if packs and sum(packs[-1]) + length <= size and len(packs[-1]) < (cap or len(lengths)):
            packs[-1].append(length)
        else:
            packs.append([length])
    return packs


@given(drawn=lengths_and_size(), algorithm=st.sampled_from(ALGORITHMS), cap=CAPS, seed=SEEDS)
def test_packs_hold_every_sequence_once(
    drawn: tuple[list[int], int], algorithm: str, cap: int | None, seed: int
) -> None:
    lengths, size = drawn
    plan = _plan(lengths, size, algorithm, cap, seed)

    assert sorted(plan.sequence_order.tolist()) == list(range(len(lengths)))
    assert plan.pack_offsets[0] == 0
    assert plan.pack_offsets[-1] == len(lengths)
    num_checked = 0
    for pack in _packs(lengths, plan):
        assert pack
        assert sum(pack) <= size
        assert len(pack) <= (cap or len(lengths))
        num_checked += len(pack)
    assert num_checked == len(lengths)
    np.random.seed(0)
    again = _plan(lengths, size, algorithm, cap, seed)
    assert again.sequence_order.tolist() == plan.sequence_order.tolist()
    assert again.pack_offsets.tolist() == plan.pack_offsets.tolist()


@given(drawn=lengths_and_size(), cap=CAPS, seed=SEEDS)
@example(drawn=([60, 20, 20, 20, 60, 60], 100), cap=None, seed=0)
@example(drawn=([3277, 3276, 2730, 1639] * 50, 8192), cap=None, seed=3)  # no even plan is as small as best fit
@example(drawn=([5, 5, 5, 2, 2, 2, 1], 9), cap=2, seed=0)
def test_packs_are_those_of_the_slow_one(drawn: tuple[list[int], int], cap: int | None, seed: int) -> None:
    """First-fit shuffle takes lengths in the order of numpy's shuffle."""
    lengths, size = drawn
    found = {name: _packs(lengths, _plan(lengths, size, name, cap, seed)) for name in ALGORITHMS}
    assert len(found.pop("equal_cost")) == len(found["best_fit_decreasing"])
    shuffled = np.array(sorted(lengths), dtype=np.int64)
    np.random.RandomState(seed).shuffle(shuffled)

    for name, is_best_fit in (("best_fit_decreasing", True), ("first_fit_decreasing", False)):
        expected = _pack_slowly(sorted(lengths, reverse=True), size, cap, is_best_fit=is_best_fit)
        assert sorted(found.pop(name)) == sorted(expected)
    assert found.pop("sequential") == _pack_in_order(lengths, size, cap)
    assert found == {"first_fit_shuffle": _pack_slowly(shuffled.tolist(), size, cap, is_best_fit=False)}


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name != "sequential"])
def test_seed_chooses_among_equals(algorithm: str) -> None:
    plans = [_plan([4] * 40, 10, algorithm, None, seed).sequence_order.tolist() for seed in (1, 1, 2)]

    assert plans[0] == plans[1] != plans[2]


def test_which_of_equal_sequences_are_together_is_as_in_the_host() -> None:
    """tests/contract/test_prompt_completion.py compares with the host itself."""
    plan = _plan([3, 3, 3, 3, 2, 2, 2, 2], 5, "first_fit_shuffle", None, 7)

    assert [plan.pack(pack).tolist() for pack in range(plan.num_packs)] == [[6, 2], [4, 3], [5, 7], [0], [1]]


def test_equal_cost_evens_out_squared_lengths() -> None:
    """By tokens alone the packs would be [4 2] and [2 2 1 1]."""
    lengths = [4, 2, 2, 2, 1, 1]

    packs = _packs(lengths, _plan(lengths, 6, "equal_cost", None, 0))

    assert sorted(map(sorted, packs)) == [[1, 1, 4], [2, 2, 2]]


@pytest.mark.parametrize(("longest", "ratio"), [(1024, 1.01), (4096, 1.5)])
def test_no_rank_waits_for_packs_of_equal_cost(longest: int, ratio: float) -> None:
    """Of a pack, the longest sequence is an eighth or a half; eight ranks take a pack each, in random order."""
    drawn = np.random.default_rng(7).lognormal(6.2, 1.0, size=60_000).astype(np.int64)
    lengths = np.clip(drawn, 16, longest)
    num_packs, stragglers = {}, {}
    for algorithm in ("best_fit_decreasing", "equal_cost"):
        plan = plan_packs(lengths, packed_sequence_size=8192, algorithm=algorithm)
        costs = np.add.reduceat(lengths[plan.sequence_order] ** 2, plan.pack_offsets[:-1])
        steps = costs[: len(costs) // 8 * 8].reshape(-1, 8)
        num_packs[algorithm] = plan.num_packs
        stragglers[algorithm] = steps.max(axis=1).sum() / steps.mean(axis=1).sum()

    assert stragglers["equal_cost"] <= ratio < stragglers["best_fit_decreasing"]
    assert num_packs["equal_cost"] <= num_packs["best_fit_decreasing"] * 1.001


def test_order_and_hash_are_the_same_for_ever() -> None:
    first_of_splitmix64 = 0xE220A8397B1DCDAF
    assert seeded_hash(np.zeros(1, dtype=np.uint64), 0).tolist() == [first_of_splitmix64]
    assert seeded_order(8, 1234).tolist() == [6, 4, 7, 1, 2, 0, 5, 3]
