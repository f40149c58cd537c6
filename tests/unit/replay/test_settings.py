"""Ranks of a topology, bounds of a loader's settings, and batches of evaluations, counted by hand."""

from typing import Any

import pytest

from bridgepack.errors import ConfigError
from bridgepack.replay.order import PackOrder
from bridgepack.replay.settings import EvaluationSchedule, ReplaySettings, Topology

SIZES = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "context_parallel_size": 3}


def settings(**changes: Any) -> ReplaySettings:
    fields: dict[str, Any] = {"version": "0.6.2", "num_packs": 5, "micro_batch_size": 1, "global_batch_size": 2}
    return ReplaySettings(**(fields | {"topology": Topology(world_size=2)} | changes))


@pytest.mark.parametrize(
    ("pipeline_before_data", "expected"),
    # from the innermost: 2 tensor ranks, 3 context ranks, then 2 data and 2 pipeline ranks, or the other way round
    [(False, [0] * 6 + [1] * 6 + [0] * 6 + [1] * 6), (True, [0] * 12 + [1] * 12)],
)
def test_data_parallel_ranks_of_a_topology(pipeline_before_data: bool, expected: list[int]) -> None:
    topology = Topology(world_size=24, pipeline_before_data=pipeline_before_data, **SIZES)

    assert (topology.model_parallel_size, topology.data_parallel_size) == (12, 2)
    assert [topology.data_parallel_rank_of(rank) for rank in range(24)] == expected
    for rank in (-1, 24):
        with pytest.raises(ConfigError, match=f"rank is {rank}; allowed: 0 to 23"):
            topology.data_parallel_rank_of(rank)


def test_four_pipelines_of_three_ranks_with_data_outermost() -> None:
    topology = Topology(world_size=12, pipeline_model_parallel_size=3, pipeline_before_data=True)

    assert [topology.data_parallel_rank_of(rank) for rank in range(12)] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


@pytest.mark.parametrize("seed", [0, 2**32 - 1])
def test_numpy_s_seeds_are_allowed(seed: int) -> None:
    assert PackOrder(settings(seed=seed)).packs_at(1, 0).tolist()


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_other_seeds_are_refused(seed: int) -> None:
    with pytest.raises(ConfigError, match=f"dataset.seed is {seed}; allowed: 0 to 4294967295"):
        settings(seed=seed)


def test_samples_are_packs_or_their_maximum() -> None:
    assert settings().num_samples == 5
    assert settings(max_samples=3).num_samples == 3
    assert settings(max_samples=8).num_samples == 8


def test_ranks_that_do_not_exist_have_no_packs() -> None:
    order = PackOrder(settings())

    for rank in (-1, 2):
        with pytest.raises(ConfigError, match=f"data_parallel_rank is {rank}; allowed: 0 to 1"):
            order.packs_at(1, rank)


@pytest.mark.parametrize(
    ("changes", "step", "batches"),
    [
        ({}, 9, []),
        ({}, 10, [1, 2, 3, 4]),
        ({}, 20, [5, 6, 7, 8]),
        ({"eval_iters": 1}, 30, [3]),
        ({"eval_iters": 0}, 10, []),
        ({"eval_interval": None}, 10, []),
        ({"eval_interval": 1}, 1, [1, 2, 3, 4]),
        ({"skips_training": True}, 10, []),
        ({"start_eval_at_iter": 10}, 10, [1, 2, 3, 4]),
        ({"start_eval_at_iter": 11}, 10, []),
        ({"start_eval_at_iter": 11}, 20, [1, 2, 3, 4]),
        ({"start_eval_at_iter": 0}, 10, [1, 2, 3, 4]),
    ],
)
def test_batches_of_an_evaluation(changes: dict[str, Any], step: int, batches: list[int]) -> None:
    schedule = EvaluationSchedule(**({"eval_interval": 10, "eval_iters": 4} | changes))

    assert list(schedule.batches_after(step)) == batches


@pytest.mark.parametrize(
    ("changes", "batches"),
    [
        ({}, [9, 10, 11, 12]),
        ({"num_steps": None}, []),
        ({"eval_iters": 0}, []),
        ({"eval_iters": 1}, [3]),
        ({"num_steps": 9}, [1, 2, 3, 4]),
        ({"skips_training": True}, [1, 2, 3, 4]),
    ],
)
def test_batches_of_the_last_evaluation(changes: dict[str, Any], batches: list[int]) -> None:
    schedule = EvaluationSchedule(**({"eval_interval": 10, "eval_iters": 4, "num_steps": 25} | changes))

    assert list(schedule.final_batches()) == batches
