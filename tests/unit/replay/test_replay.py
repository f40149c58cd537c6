from collections.abc import Callable
from typing import Any

import pytest

from bridgepack.bridge.replay_settings import evaluation_schedule, replay_settings
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.proof.packs import ShardIndex, ShardRow
from bridgepack.records import RunConfig
from bridgepack.replay.order import FILLER, PackOrder
from bridgepack.replay.samplers import torch_permutation
from bridgepack.replay.settings import EvaluationSchedule, ReplaySettings, Topology
from tests.support.catalogue import SMALL

TWO_RANKS = Topology(world_size=2)
RECIPE: dict[str, Any] = {
    **SMALL,
    "data": {"train": ["a.jsonl"], "validation_fraction": 0.1},
    "packing": {"packed_sequence_size": 64, "seed": 7},
    "parallelism": {"num_gpus": 8, "tensor_model_parallel_size": 2},
    "batch": {"global_batch_size": 8},
}
RUN: dict[str, Any] = {
    "dataset": {"dataloader_type": "batch", "seed": 1234, "dataset_kwargs": None},
    "train": {"micro_batch_size": 1, "global_batch_size": 4, "train_iters": 10},
    "model": {"tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 2, "context_parallel_size": 1},
    "validation": {"eval_interval": 4, "eval_iters": 3},
}
NINE: dict[str, Any] = {"num_packs": {"training": 9}, "version": "0.6.2"}


def _settings(**changes: Any) -> ReplaySettings:
    sizes = {"num_packs": 5, "micro_batch_size": 1, "global_batch_size": 2}
    fields: dict[str, Any] = {"version": "0.6.2", "topology": TWO_RANKS, **sizes}
    return ReplaySettings(**(fields | changes))


def _run(**changes: Any) -> RunConfig:
    values = {name: {**section, **changes.get(name, {})} for name, section in RUN.items()}
    return RunConfig(values=values, is_complete=False, place="run.yaml")


def test_shards_count_in_the_order_of_their_names() -> None:
    index = ShardIndex({"training/shard-00001.parquet": 2, "training/shard-00000.parquet": 3, "training/a.pq": 0})

    assert index.num_packs == 5
    assert index.place_of(3) == ShardRow("training/shard-00001.parquet", 0)
    assert [index.place_of(pack).row for pack in range(5)] == [0, 1, 2, 0, 1]
    with pytest.raises(ConfigError, match="pack is 5; allowed: 0 to 4"):
        index.place_of(5)


def test_batch_shuffles_each_epoch_and_goes_on_after_a_checkpoint() -> None:
    steps = range(1, 6)

    found = [[PackOrder(_settings()).packs_at(step, rank).tolist() for rank in (0, 1)] for step in steps]

    # torch.randperm(5) after manual_seed(1234), 1235 and 1236; the fifth of each epoch is left out
    assert found == [[[0], [4]], [[2], [1]], [[3], [0]], [[2], [4]], [[2], [4]]]
    for resume_step in steps[:-1]:
        order = PackOrder(_settings(resume_step=resume_step))
        assert order.first_step == resume_step + 1
        rest = [[order.packs_at(step, rank).tolist() for rank in (0, 1)] for step in steps[resume_step:]]
        assert rest == found[resume_step:]


def test_single_goes_through_the_packs_once() -> None:
    order = PackOrder(_settings(loader="single", num_packs=9, global_batch_size=4, num_steps=3))
    rest = PackOrder(_settings(loader="single", drop_last=False))

    found = [[order.packs_at(step, rank).tolist() for rank in (0, 1)] for step in (1, 2)]
    assert found == [[[0, 2], [1, 3]], [[4, 6], [5, 7]]]
    with pytest.raises(ConfigError, match="dataloader_type is single; Megatron-Bridge stops after 4 micro batches"):
        order.packs_at(3, 0)
    assert rest.packs_at(3, 0).tolist() == [4]
    with pytest.raises(ConfigError, match="give data-parallel rank 1 nothing at step 3"):
        rest.packs_at(3, 1)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: torch_permutation(214748364, 0), "num_packs is 214748364; allowed: below"),
        (lambda: Topology(world_size=6, tensor_model_parallel_size=4), r"is 6; allowed: multiples of .*4.*to 8"),
        (lambda: Topology(world_size=0), "world_size is 0; allowed: whole numbers from 1"),
        (lambda: Topology(world_size=True), "world_size is True"),
        (lambda: TWO_RANKS.data_parallel_rank_of(2), "rank is 2; allowed: 0 to 1"),
        (lambda: PackOrder(_settings()).packs_at(1, -1), "data_parallel_rank is -1; allowed: 0 to 1"),
        (lambda: PackOrder(_settings(num_steps=3)).packs_at(0, 0), "step is 0; allowed: 1 to 3"),
        (lambda: PackOrder(_settings(num_steps=3)).packs_at(4, 0), "step is 4; allowed: 1 to 3"),
        (lambda: list(PackOrder(_settings(num_steps=3)).steps_of(5)), "pack is 5; allowed: 0 to 4"),
        (lambda: list(PackOrder(_settings()).steps_of(0)), "last_step is not given"),
    ],
)
def test_questions_that_have_no_answer(ask: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ask()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": "0.2"}, "allowed: 0.6 and 0.7"),
        ({"num_packs": 0}, "num_packs is 0"),
        ({"max_samples": 0}, "max_samples is 0"),
        ({"resume_step": -1}, "resume_step is -1; allowed: whole numbers from 0"),
        ({"loader": "external"}, "dataloader_type is 'external'; allowed: batch, single, cyclic"),
        ({"seed": -1}, "dataset.seed is -1; allowed: 0 to 4294967295"),
        ({"global_batch_size": 3}, "global_batch_size is 3; allowed: multiples of .*1 x 2"),
        ({"num_packs": 1, "max_samples": 1}, "max_train_samples is 1 with one pack"),
        ({"loader": "cyclic", "global_batch_size": 1}, "global_batch_size is 1; allowed: multiples of"),
    ],
)
def test_settings_that_the_host_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _settings(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_packs": 1}, "train.global_batch_size is 2"),
        ({"num_packs": 1, "is_evaluation": True}, "validation.eval_global_batch_size is 2"),
        ({"num_packs": 1, "loader": "single"}, "train.global_batch_size is 2"),
        ({"num_packs": 1, "loader": "cyclic", "is_evaluation": True}, "2 packs at a time"),
        ({"loader": "single", "resume_step": 3}, "6 packs are consumed and"),
        (
            {"loader": "cyclic", "consumed_packs": 1},
            "allowed with dataset.dataloader_type cyclic",
        ),
    ],
)
def test_runs_that_do_not_get_to_a_first_step(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PackOrder(_settings(**changes))


def test_settings_of_a_recipe_and_of_its_evaluation() -> None:
    recipe = SFTRecipe.from_mapping(RECIPE).override({"schedule.eval_interval": 2})
    given: dict[str, Any] = {"num_packs": {"training": 30, "validation": 21}, "version": "0.6.2"}
    sizes = {"num_packs": 30, "micro_batch_size": 1, "global_batch_size": 8}
    topology = Topology(world_size=8, tensor_model_parallel_size=2)

    expected = ReplaySettings(version="0.6.2", topology=topology, seed=7, num_steps=4, **sizes)
    assert replay_settings(recipe, world_size=None, **given) == expected
    schedule = EvaluationSchedule(eval_interval=2, eval_iters=2, num_steps=4)
    assert evaluation_schedule(recipe, **given) == schedule
    settings = replay_settings(recipe, world_size=4, split="validation", resume_step=3, **given)
    assert (settings.topology.data_parallel_size, settings.is_evaluation, settings.resume_step) == (2, True, 2)


@pytest.mark.parametrize(
    ("version", "loader", "drop_last"),
    [("0.6.2", "batch", True), ("0.7.0", "batch", False), ("0.7.0", "cyclic", True), ("0.7.0", "single", True)],
)
def test_evaluations_keep_the_last_batch_since_0_7(version: str, loader: str, drop_last: bool) -> None:
    run, num_packs = _run(dataset={"dataloader_type": loader}), {"training": 9, "validation": 5}
    found = replay_settings(run, num_packs=num_packs, world_size=4, version=version, split="validation")

    assert found.drop_last is drop_last
    if loader == "batch":
        read = [PackOrder(found).packs_at(2, rank).tolist() for rank in range(2)]
        assert sum(packs.count(FILLER) for packs in read) == (0 if drop_last else 3)


@pytest.mark.parametrize(("num_packs", "is_refused"), [(5, True), (6, False)])
def test_an_uneven_rest_is_refused_since_0_7(num_packs: int, is_refused: bool) -> None:
    settings: dict[str, Any] = {"loader": "single", "drop_last": False, "num_packs": num_packs}
    assert PackOrder(_settings(**settings)).packs_at(1, 0).tolist() == [0]
    if is_refused:
        with pytest.raises(ConfigError, match=r"refuses 5 packs, as 2 at a time .* Set it to true"):
            PackOrder(_settings(**settings, version="0.7.0"))
    else:
        assert PackOrder(_settings(**settings, version="0.7.0")).packs_at(3, 1).tolist() == [5]


def test_settings_of_a_run() -> None:
    """Whole epochs keep a partial batch, a limit in dataset_kwargs is one of both splits, a seed of null the run's."""
    whole = replay_settings(_run(train={"num_epochs": 1.5, "train_iters": None}), **NINE, world_size=4)
    assert (whole.drop_last, whole.num_steps) == (False, 5)
    limited = _run(dataset={"max_train_samples": 5, "dataset_kwargs": {"max_num_samples": 6}})
    num_packs = {"training": 9, "validation": 9}
    for split in num_packs:
        found = replay_settings(limited, num_packs=num_packs, world_size=2, version="0.6.2", split=split)
        assert found.max_samples == 6
    values = {**RUN, "dataset": {"seed": None}, "rng": {"seed": 5}}
    run = RunConfig(values=values, is_complete=False, place="run.yaml", world_size=2)
    assert replay_settings(run, **NINE, world_size=None).seed == 5
    in_batch = SFTRecipe.from_mapping({**RECIPE, "packing": {"packed_sequence_size": 64, "mode": "in_batch"}})
    with pytest.raises(ConfigError, match=r"packing\.mode is in_batch; allowed: offline"):
        replay_settings(in_batch, **NINE, world_size=2)


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({"train": {"global_batch_size": None}}, {}, "train.global_batch_size is not set in run.yaml"),
        ({"train": {"micro_batch_size": "1"}}, {}, "train.micro_batch_size is '1'; allowed: a whole number"),
        ({"dataset": {"drop_last": 1}}, {}, "dataset.drop_last is 1; allowed: true or false"),
        ({"dataset": {"seed": None, "max_train_samples": 4}}, {}, "dataset.seed is null with a"),
        ({"train": {"num_epochs": "2"}}, {}, "train.num_epochs is '2'; allowed: a number"),
        ({"train": {"num_epochs": 2}, "dataset": {"dataloader_type": "cyclic"}}, {}, "allowed: batch, as only"),
        ({}, {"world_size": None}, "world_size is not given"),
        ({}, {"split": "test"}, "split is 'test'; allowed: training"),
        ({}, {"version": "new"}, "a version such as 0.6.2"),
    ],
)
def test_runs_that_do_not_say_enough(changes: dict[str, Any], arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replay_settings(_run(**changes), **(NINE | {"world_size": 2} | arguments))


def test_evaluations_can_begin_later_or_never() -> None:
    late = EvaluationSchedule(eval_interval=5, eval_iters=2, start_eval_at_iter=10, num_steps=15)

    assert [list(late.batches_after(step)) for step in (5, 10, 15)] == [[], [1, 2], [3, 4]]
    for none in (
        EvaluationSchedule(eval_interval=None, eval_iters=2),
        EvaluationSchedule(eval_interval=5, eval_iters=0),
        EvaluationSchedule(eval_interval=5, eval_iters=2, skips_training=True),
    ):
        assert not none.batches_after(5)
    only = EvaluationSchedule(eval_interval=5, eval_iters=2, num_steps=10, skips_training=True)
    assert list(only.final_batches()) == [1, 2]
