"""The Python of docs/launch.md, with the real nemo-run and the plugins of the real megatron-bridge."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("nemo_run")

import nemo_run as run

import bridgepack.launching.experiment
from bridgepack.launching.tasks import LaunchTask
from bridgepack.running.assignment import assignment_of
from tests.support.docs_blocks import Block, blocks
from tests.support.launches import launch_recipe
from tests.support.small_builds import write_recipe

pytestmark = pytest.mark.bridge


@pytest.fixture
def folder(tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch, nemo_home: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    write_recipe(tmp_path / "mine.yaml", launch_recipe(tmp_path, chatml_tokenizer))
    (tmp_path / "cluster.yaml").write_text("executor: {kind: torchrun}\n")
    return tmp_path


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Sequence[LaunchTask]]]:
    """Return the plans that are submitted, with their tasks; nothing runs."""
    found: list[Any] = []

    def submit(plan: Any, *, tasks: Sequence[LaunchTask] = (), **options: Any) -> Any:
        found.append((plan, tasks))
        return SimpleNamespace(has_failed=False)

    monkeypatch.setattr(bridgepack.launching.experiment, "submit", submit)
    return found


def snippet(start: str) -> Block:
    (block,) = [block for block in blocks("python", page="launch.md") if start in block.text]
    return block


def test_launching_by_a_call(folder: Path, submitted: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    exec(snippet("bridgepack.launch(").text, {})

    ((plan, _),) = submitted
    assert plan.recipe.schedule.train_iters == 100
    assert plan.tasks == ("build", "check", "train")
    assert capsys.readouterr().out == "False\n"


def test_parts_go_into_an_experiment_of_one_s_own(folder: Path) -> None:
    scope: dict[str, Any] = {}
    exec(snippet("make_tasks(plan):").text, scope)

    assert [job.id for job in scope["experiment"].jobs] == ["build", "check", "train"]
    assert [job.dependencies for job in scope["experiment"].jobs] == [[], ["build"], ["check"]]


def test_settings_of_upstream_s_plugins_reach_the_training(folder: Path, submitted: list[Any]) -> None:
    scope: dict[str, Any] = {}
    exec(snippet("NsysPlugin").text, scope)

    assert scope["profiled"]("mine.yaml", "cluster.yaml") is False
    with run.Experiment("profiled") as experiment:
        for task in submitted[0][1]:
            experiment.add(task.script, executor=task.executor, name=task.name, plugins=list(task.plugins))
        train = experiment.jobs[-1]
    recipe = assignment_of(train.task.args, program="train", description="").recipe
    assert recipe.bridge_overrides["profiling"]["use_nsys_profiler"] is True
    assert recipe.bridge_overrides["profiling"]["profile_step_end"] == 12
    assert train.executor.get_launcher().nsys_profile
