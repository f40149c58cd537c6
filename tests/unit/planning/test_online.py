"""Packing at run time: the packs of dp_balanced by hand, and what a plan says of it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.host import TARGET
from bridgepack.planning.estimate import Arithmetic, Speed, Work
from bridgepack.planning.layout import Layout, gpu_by_name
from bridgepack.planning.lengths import Lengths, PackedLengths
from bridgepack.planning.online import grouped_online, packed_online, packs_in_order
from bridgepack.planning.plan import Plan, plan_recipe
from bridgepack.planning.shape import shape_of
from bridgepack.reporting.results.plans import plan_blocks
from bridgepack.reporting.screen import screen
from tests.support.messages import mentions


@pytest.mark.parametrize(
    ("lengths", "capacity", "multiple", "packs"),
    [
        ([3, 3, 2, 4], 6, 2, [[0, 1], [2, 3]]),
        ([9, 1], 6, 1, [[0], [1]]),
        ([4, 4, 4, 1, 1], 6, 2, [[0], [1], [2, 3], [4]]),
    ],
)
def test_packs_are_made_in_order_and_split_for_the_ranks(
    lengths: list[int], capacity: int, multiple: int, packs: list[list[int]]
) -> None:
    assert packs_in_order(lengths, capacity=capacity, multiple=multiple) == packs


def test_a_step_with_too_few_sequences_is_refused() -> None:
    with pytest.raises(ValueError, match="3 sequences do not make 2 packs"):
        packs_in_order([1, 1, 1], capacity=8, multiple=2)  # none is taken from the first pack


@given(st.lists(st.integers(1, 20), min_size=8, max_size=60), st.integers(20, 60), st.integers(1, 8))
def test_every_sequence_is_in_one_pack_that_fits(lengths: list[int], capacity: int, multiple: int) -> None:
    before = packs_in_order(lengths, capacity=capacity, multiple=1)
    spare = sum(len(pack) - 1 for pack in before[1:])
    if -len(before) % multiple > spare:
        with pytest.raises(ValueError, match="do not make"):
            packs_in_order(lengths, capacity=capacity, multiple=multiple)
        return
    packs = packs_in_order(lengths, capacity=capacity, multiple=multiple)

    assert sorted(index for pack in packs for index in pack) == list(range(len(lengths)))
    assert all(sum(lengths[index] for index in pack) <= capacity for pack in packs)
    assert len(packs) % multiple == 0


@pytest.fixture(scope="module")
def planned() -> Plan:
    recipe = SFTRecipe.from_mapping(
        {
            "name": "planned",
            "data": {"train": "rows.jsonl"},
            "tokenizer": {"name_or_path": "Qwen/Qwen3-8B"},
            "packing": {"packed_sequence_size": 8192},
            "batch": {"tokens_per_step": 1 << 20},
            "model": {"name": "Qwen/Qwen3-8B"},
        }
    )
    runtime = np.random.default_rng(0).lognormal(6.5, 1.0, 20_000).clip(16, 8000).astype(np.int64)
    lengths = Lengths(runtime=runtime, share=1.0, origin="drawn")
    return plan_recipe(recipe, lengths, gpu=gpu_by_name("h100-80gb"), num_gpus=16, sizes=(8192,))


def test_a_plan_has_a_row_for_packing_at_run_time(planned: Plan) -> None:
    (online,), best = planned.online, planned.best

    assert online.scheduler == "dp_balanced"
    assert online.max_seqlen_per_dp_cp_rank * best.layout.context == best.packed_sequence_size
    # in order, packs are emptier than those of all sequences at once, and as many tokens are trained in a step
    assert online.fill_fraction < best.fill_fraction
    assert online.packs_per_step * online.fill_fraction == pytest.approx(
        best.global_batch_size * best.fill_fraction, rel=0.02
    )
    assert online.straggler_ratio > 1
    assert 0.5 < online.tokens_per_s / best.tokens_per_s < 1.1


def test_the_text_says_what_packing_at_run_time_cannot_do(planned: Plan) -> None:
    text = screen(plan_blocks(planned))

    assert "dp_balanced: " in text
    assert mentions(text, "knows before the run", "rows a step trains")
    assert planned.to_dict()["online"][0]["scheduler"] == "dp_balanced"


def test_both_ways_hide_the_exchange_of_gradients_in_the_backward_pass(planned: Plan) -> None:
    """16 GPUs with a sequence each: one pass, whose backward part, 2/3 of it, hides the exchange as far as it goes."""
    candidate = replace(planned.best, layout=Layout(num_gpus=16), global_batch_size=16, packed_sequence_size=1024)
    even = PackedLengths(
        packs=(np.array([1024]),) * 16,
        num_tokens=16 * 1024,
        fill_fraction=1.0,
        padding_fraction=0.0,
        over_long_fraction=0.0,
        lost_fraction=0.0,
    )
    values = TARGET.facts.model_by_name("Qwen/Qwen3-8B")
    assert values is not None
    arithmetic = Arithmetic(
        shape=shape_of(values), gpu=gpu_by_name("h100"), layout=candidate.layout, is_full=True, speed=Speed()
    )
    pass_s = float(arithmetic.packs_s(Work.from_packs(even, arithmetic.cost))[0])
    exchange_s = arithmetic.gradients_s()
    assert 0 < exchange_s - pass_s * 2 / 3 < exchange_s

    in_order = packed_online(candidate, even, arithmetic, seed=0)
    grouped = grouped_online(candidate, even, arithmetic, seed=0, grouping=lambda *_: [[[rank] for rank in range(16)]])

    assert in_order is not None
    assert in_order.step_s == pytest.approx(pass_s + exchange_s - pass_s * 2 / 3)
    assert grouped.step_s == pytest.approx(in_order.step_s)
