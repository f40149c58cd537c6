"""make_tasks: Script and Executor of each task, the order in which they start, and the state of a job array."""

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nemo_run")

from bridgepack.config.cluster import ClusterConfig
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.launching.plan import plan_launch
from bridgepack.launching.tasks import LaunchTask, make_tasks
from bridgepack.launching.watching import state_of_rows

pytestmark = pytest.mark.bridge

SLURM = {"kind": "slurm", "account": "research", "nodes": 2, "gpus_per_node": 4}


def tasks_on(recipe: SFTRecipe, values: dict[str, Any], *, skip: tuple[str, ...] = ()) -> tuple[LaunchTask, ...]:
    overrides = {"parallelism.num_gpus": 8, "batch.global_batch_size": 8}
    return make_tasks(plan_launch(recipe, ClusterConfig.from_mapping(values), overrides=overrides, skip=skip))


def slurm_tasks(recipe: SFTRecipe, *, skip: tuple[str, ...] = (), **executor: Any) -> tuple[LaunchTask, ...]:
    return tasks_on(recipe, {"executor": {**SLURM, **executor}, "workspace": "/shared"}, skip=skip)


def test_slurm_starts_a_task_after_the_success_of_the_one_before_and_cancels_it_otherwise(recipe: SFTRecipe) -> None:
    own = {"additional_parameters": {"mail_type": "END"}, "dependencies": ["41"], "dependency_type": "afterany"}
    build, *later = slurm_tasks(recipe, **own)

    assert (build.executor.parse_deps(), build.executor.dependency_type) == (["41"], "afterany")
    assert build.executor.additional_parameters == {"mail_type": "END"}
    for task in later:
        assert (task.executor.dependencies, task.executor.dependency_type) == ([], "afterok")
        assert task.executor.additional_parameters == {"kill_on_invalid_dep": "yes", "mail_type": "END"}
    recipe = recipe.override({"artifact": "/shared/packs"})
    (train,) = slurm_tasks(recipe, skip=("build", "check"), dependencies=["41"])
    assert (train.executor.parse_deps(), train.executor.additional_parameters) == (["41"], None)


def test_own_python_and_script(recipe: SFTRecipe) -> None:
    own = {"python": "/opt/venv/bin/python3.12", "train_script": "/code/my train.py"}
    values = {"executor": SLURM, "workspace": "/shared", **own}
    build, _, train = tasks_on(recipe, values)
    launched = tasks_on(recipe, {**values, "executor": {**SLURM, "launcher": {"kind": "torchrun"}}})[-1]

    assert build.script.entrypoint == train.script.entrypoint == "/opt/venv/bin/python3.12"
    assert (train.script.path, train.script.m, train.script.args[0]) == ("'/code/my train.py'", False, "--assignment")
    assert launched.script.entrypoint == "python"  # with another, torchrun would execute the script itself
    assert build.script.env == {}


def test_own_python_on_this_machine_brings_its_torchrun(recipe: SFTRecipe) -> None:
    cluster = ClusterConfig.from_mapping({"executor": {"kind": "torchrun"}, "python": "/opt/venv/bin/python"})
    tasks = make_tasks(plan_launch(recipe, cluster))
    default = make_tasks(plan_launch(recipe, "torchrun"))

    assert {task.script.env["PATH"] for task in tasks} == {"/opt/venv/bin"}
    assert all("PATH" not in task.script.env for task in default)
    assert {task.executor.env_vars["PATH"] for task in default} == {str(Path(sys.executable).parent)}


def test_missing_variables_are_named_before_submitting(recipe: SFTRecipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)

    with pytest.raises(ConfigError, match="HF_TOKEN"):
        slurm_tasks(recipe, env_vars={"HF_TOKEN": "${env:HF_TOKEN}"})


@pytest.mark.parametrize(
    ("rows", "state"),
    [
        ("", "SUBMITTED"),
        ("12_[0-9%1]|PENDING\n", "PENDING"),
        ("12_0|RUNNING\n12_[1-9%1]|PENDING\n", "RUNNING"),
        ("12_0|COMPLETED\n12_[1-9%1]|PENDING\n", "RUNNING"),
        ("12_0|TIMEOUT\n12_1|COMPLETED\n", "SUCCEEDED"),
        ("12_10|COMPLETED\n12_9|FAILED\n", "SUCCEEDED"),
        ("12_0|COMPLETED\n12_1|NODE_FAIL\n", "FAILED"),
        ("12_0|CANCELLED by 1000\n12_[1-9%1]|CANCELLED by 1000\n", "CANCELLED"),
        ("12_0|OF A LATER VERSION\n", "PENDING"),
    ],
)
def test_state_of_an_array(rows: str, state: str) -> None:
    assert state_of_rows(rows).name == state
