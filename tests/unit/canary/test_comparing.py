"""Distances between steps, and what is judged of them, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bridgepack.canary.comparing import WholeStep, distance, unpacked_step, whole_step
from bridgepack.canary.records import Layout, RunOutcome, SeenBatch, SeenRank


def _rank(rank: int, *, tensor: int = 0, pipeline: int = 0, **gradients: list[float]) -> SeenRank:
    return SeenRank(
        rank=rank,
        tensor=tensor,
        pipeline=pipeline,
        context=0,
        data=0,
        rows=(0,),
        batches=(),
        loss=6.0,
        num_trained=3,
        gradients={name: np.array(values) for name, values in gradients.items()},
        cuts={name: (0, 1) if name.startswith("split") else (-1, 1) for name in gradients},
        magnitudes=dict.fromkeys(gradients, 10.0),
    )


def _step(**gradients: list[float]) -> WholeStep:
    return whole_step(RunOutcome(exit_codes=(0,), ranks=(_rank(0, **gradients),)), Layout(), {})


def test_ranks_are_put_together() -> None:
    ranks = (
        _rank(0, tensor=0, pipeline=0, split=[1.0], copied=[5.0]),
        _rank(1, tensor=1, pipeline=0, split=[2.0], copied=[5.5]),
        _rank(2, tensor=0, pipeline=1, other=[7.0]),
        _rank(3, tensor=1, pipeline=1, other=[7.0]),
    )

    step = whole_step(RunOutcome(exit_codes=(0,) * 4, ranks=ranks), Layout(tensor=2, pipeline=2), {})

    assert (step.loss, step.num_trained) == (6.0, 3)
    assert {name: value.tolist() for name, value in step.gradients.items()} == {
        "copied": [5.0],
        "other": [7.0],
        "split": [1.0, 2.0],
    }
    assert step.copies == {"copied": 0.5, "other": 0.0, "split": 0.0}


def test_gradients_are_measured_by_the_norms_of_sequences() -> None:
    """The measure is 10 / 3 trained tokens."""
    far = distance(_step(a=[1.0], b=[2.0]), _step(a=[1.0], b=[2.01]))

    assert list(far.gradients) == ["b", "a"]
    assert far.gradients["b"] == pytest.approx(0.01 * 3 / 10)
    assert far.largest_gradient == far.gradients["b"]
    assert far.is_within(0.004)
    assert not far.is_within(0.002)


def test_copies_that_differ_count() -> None:
    reference = _step(a=[1.0])
    ranks = (_rank(0, a=[1.0]), _rank(1, a=[1.5]))

    far = distance(whole_step(RunOutcome(exit_codes=(0, 0), ranks=ranks), Layout(data=2), {}), reference)

    assert far.largest_gradient == pytest.approx(0.5 * 3 / 10)


def test_what_is_no_number_is_never_within() -> None:
    assert not distance(_step(a=[float("nan")]), _step(a=[1.0])).is_within(1e9)


def test_more_trained_tokens_are_never_within() -> None:
    step = _step(a=[1.0])
    more = WholeStep(loss=6.0, num_trained=4, gradients=step.gradients, copies={}, magnitudes={})

    assert not distance(more, step).is_within(1e9)


def test_the_furthest_sequence_is_told() -> None:
    losses, reference = {(0, 0): 1.0, (0, 1): 2.2, (1, 0): 3.0}, {(0, 0): 1.0, (0, 1): 2.0, (1, 0): 3.03}

    far = distance(replace(_step(a=[1.0]), losses=losses), replace(_step(a=[1.0]), losses=reference))

    assert far.sequence is not None
    assert far.sequence[:2] == (0, 1)
    assert far.sequence[2] == pytest.approx(0.1)


def test_unpacked_rows_are_found_in_their_packs() -> None:
    def batch(row: int) -> SeenBatch:
        return SeenBatch(row=row, losses=np.array([1.0, 5.0]) * (row + 1), loss_mask=np.array([1, 0]))

    rank = _rank(0)
    seen = RunOutcome(
        exit_codes=(0,),
        ranks=(
            SeenRank(
                **{name: getattr(rank, name) for name in ("rank", "tensor", "pipeline", "context", "data", "rows")},
                batches=(batch(2), batch(0), batch(1)),
                loss=0.0,
                num_trained=3,
                gradients={},
                cuts={},
            ),
        ),
    )

    assert unpacked_step(seen, [2, 1]).losses == {(0, 0): 1.0, (0, 1): 2.0, (1, 0): 3.0}
