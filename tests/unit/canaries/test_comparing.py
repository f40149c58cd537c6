"""Distances between steps, their bound, and how a step is judged where every rank saw what it should; by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from bridgepack.canaries import comparing
from bridgepack.canaries.comparing import Sizes, WholeStep, distance, whole_step
from bridgepack.canaries.judging import judge_step
from bridgepack.canaries.naming import LEAK_IN_ATTENTION, UNKNOWN
from bridgepack.canaries.records import Bound, RunOutcome, SeenRank, topology_of
from tests.support.canaries import packed_input, packed_row, seen_batch, seen_rank


def _rank(rank: int, *, tensor: int = 0, pipeline: int = 0, **gradients: list[float]) -> SeenRank:
    return seen_rank(
        rank,
        tensor=tensor,
        pipeline=pipeline,
        gradients={name: np.array(values) for name, values in gradients.items()},
        cuts={name: (0, 1) if name.startswith("split") else (-1, 1) for name in gradients},
        magnitudes=dict.fromkeys(gradients, 10.0),
    )


def _step(**gradients: list[float]) -> WholeStep:
    return whole_step(RunOutcome(exit_codes=(0,), ranks=(_rank(0, **gradients),)), topology_of(), {})


def test_ranks_are_put_together() -> None:
    ranks = (
        _rank(0, tensor=0, pipeline=0, split=[1.0], copied=[5.0]),
        _rank(1, tensor=1, pipeline=0, split=[2.0], copied=[5.5]),
        _rank(2, tensor=0, pipeline=1, other=[7.0]),
        _rank(3, tensor=1, pipeline=1, other=[7.0]),
    )

    step = whole_step(RunOutcome(exit_codes=(0,) * 4, ranks=ranks), topology_of(tensor=2, pipeline=2), {})

    assert (step.loss, step.num_trained) == (6.0, 3)
    gradients = {name: value.tolist() for name, value in step.gradients.items()}
    assert gradients == {"copied": [5.0], "other": [7.0], "split": [1.0, 2.0]}
    assert step.copies == {"copied": 0.5, "other": 0.0, "split": 0.0}


def test_gradients_are_measured_by_the_norms_of_sequences() -> None:
    """The measure is 10 / 3 trained tokens."""
    far = distance(_step(a=[1.0], b=[2.0]), _step(a=[1.0], b=[2.01]))

    assert list(far.gradients) == ["b", "a"]
    assert far.gradients["b"] == pytest.approx(0.01 * 3 / 10)
    assert far.largest_gradient == far.gradients["b"]
    assert far.is_within(0.004)
    assert not far.is_within(0.002)


def test_copies_that_differ_count_and_what_is_no_number_and_more_trained_tokens_are_never_within() -> None:
    step, ranks = _step(a=[1.0]), (_rank(0, a=[1.0]), _rank(1, a=[1.5]))
    far = distance(whole_step(RunOutcome(exit_codes=(0, 0), ranks=ranks), topology_of(data=2), {}), step)

    assert far.largest_gradient == pytest.approx(0.5 * 3 / 10)
    assert not distance(_step(a=[float("nan")]), step).is_within(1e9)
    assert not distance(replace(step, num_trained=4), step).is_within(1e9)


ROW = packed_row(range(5, 12), [1, 1, 0, 1, 1, 1, 0], [0, 3])
PACKS = packed_input(ROW, size=8)
BOUND = Bound(precision="float64", relative=1e-10, chain_length=1, because="")
LOSSES = [1.0, 2.0, 3.0, 4.0, 5.0, 0.0, 0.0, 0.0]


def _outcome(losses: list[float], gradient: float) -> RunOutcome:
    batch = seen_batch(ROW, PACKS.settings, losses=np.array(losses))
    rank = replace(_rank(0, weight=[gradient]), batches=(batch,), loss=15.0, num_trained=5, magnitudes={"weight": 5.0})
    return RunOutcome(exit_codes=(0,), ranks=(rank,))


@pytest.fixture
def reference() -> WholeStep:
    own = comparing.unpacked_step(_outcome(LOSSES, 1.0), [2])
    return replace(own, losses={(0, 0): 3.0, (0, 1): 12.0})


def test_equal_numbers_are_the_same(reference: WholeStep) -> None:
    measured, findings = judge_step(_outcome(LOSSES, 1.0), PACKS, reference, BOUND)

    assert (measured.outcome, findings) == ("same", [])
    assert (measured.loss, measured.gradient, measured.sequence) == (0.0, 0.0, 0.0)


def test_later_sequences_alone_that_differ_point_at_the_attention_and_others_have_no_name(reference: WholeStep) -> None:
    for losses, name, messages in (
        ([1.0, 2.0, 3.5, 4.0, 5.0, 0, 0, 0], LEAK_IN_ATTENTION, ["sequence 1 of pack 7 differs"]),
        ([1.5, *LOSSES[1:]], UNKNOWN, ["the loss of sequence 0 of pack 7 differs by 1.7e-01", "weight by 2.0e-01"]),
    ):
        measured, (found,) = judge_step(_outcome(losses, 1.2), PACKS, reference, BOUND)
        assert (measured.outcome, found.name) == ("differs", name)
        assert [text for text in messages if text not in found.message] == []


def test_gradients_that_are_all_a_multiple_were_divided_otherwise(reference: WholeStep) -> None:
    measured, (found,) = judge_step(_outcome(LOSSES, 2.5), PACKS, reference, BOUND)

    assert (measured.outcome, found.name) == ("differs", "loss-normalised-otherwise")
    assert "every gradient is 2.5 times " in found.message


def test_a_step_that_stops_without_a_cause_could_not_run(reference: WholeStep) -> None:
    stopped = replace(_outcome(LOSSES, 1.0), exit_codes=(70,), reason="rank 0: MemoryError", tail="MemoryError")

    measured, findings = judge_step(stopped, PACKS, reference, BOUND)

    assert (measured.outcome, findings) == ("could not run", [])
    assert measured.reason == "rank 0: MemoryError\nMemoryError"


MODEL = {"num_layers": 2, "hidden_size": 8, "ffn_hidden_size": 16}
MODEL |= {"num_attention_heads": 2, "num_query_groups": 1, "kv_channels": 4}
SIZES = Sizes(model=MODEL, vocab_size=32, longest_sequence=10, num_tokens=100)


def test_bfloat16_counts_stored_tensors() -> None:
    bound = comparing.bound_for("bfloat16", SIZES)

    assert bound.chain_length == 40
    assert bound.relative == pytest.approx(2 * 2 * math.sqrt(40) * 2**-8)


def test_chain_is_counted_layer_by_layer() -> None:
    forward = 4 * 8 + 16 + 2 * 4 + 2 * 4 + 2 * 10
    backward = 4 * 8 + 2 * 16 + (2 + 2) * 4 + 4 + 3 * 10

    assert comparing.chain_length(SIZES) == 2 * (forward + backward + 40) + 2 * (8 + 32) + 100
