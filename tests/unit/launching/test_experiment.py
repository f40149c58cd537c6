"""submit, with nemo-run's own local executor and small scripts in place of the tasks; and signals."""

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest

from bridgepack.launching.processes import Interruption, restore_signals

pytest.importorskip("nemo_run")

import nemo_run as run
from nemo_run.config import set_nemorun_home
from nemo_run.run.logs import print_log_lines

from bridgepack.config.cluster import ClusterConfig
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError, LaunchError
from bridgepack.launching.experiment import make_experiment, submit
from bridgepack.launching.plan import LaunchPlan, plan_launch
from bridgepack.launching.results import LaunchInterrupt
from bridgepack.launching.tasks import LaunchTask, make_tasks
from bridgepack.launching.watching import _log_errors_once
from bridgepack.records.launches import LaunchResult
from tests.support.full_clusters import least_executor
from tests.support.processes import is_running, wait_until

pytestmark = pytest.mark.bridge

#: Leaves its name, and ends with the code that its argument says; "sleep" goes on until it is ended.
SCRIPT = """\
import os, pathlib, subprocess, sys, time
name, how = sys.argv[1:]
print(f"this is {name}", flush=True)
pathlib.Path(f"{name}.began").write_text(str(os.getpid()))
if how == "sleep":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    pathlib.Path(f"{name}.child").write_text(str(child.pid))
    time.sleep(600)
sys.exit(int(how))
"""


@pytest.fixture
def plan(recipe: SFTRecipe, nemo_home: Path, tmp_path: Path) -> LaunchPlan:
    (tmp_path / "task.py").write_text(SCRIPT)
    return plan_launch(recipe, "local")


class Renames(run.Plugin):  # type: ignore[misc]
    """A plugin that changes a task, and lets the training not pass."""

    def setup(self, task: Any, executor: Any) -> None:
        if task.args[0] == "train":
            raise RuntimeError("not like this")
        task.args[0] = "renamed"


def small_tasks(plan: LaunchPlan, **ends: object) -> list[LaunchTask]:
    """Return the tasks of a plan with scripts that end as told: `build="0", train="sleep"`."""
    own = [(task, [task.name, str(ends.get(task.name, 0))]) for task in make_tasks(plan)]
    return [replace(task, script=replace(task.script, path="task.py", m=False, args=args)) for task, args in own]


def began(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.began"))


@pytest.mark.parametrize("failing", ["build", "check", "train"])
def test_a_failed_task_stops_those_after_it(plan: LaunchPlan, tmp_path: Path, failing: str) -> None:
    result = submit(plan, tasks=small_tasks(plan, **{failing: 3}))
    names = ["build", "check", "train"]
    number = names.index(failing)

    assert [task.state for task in result.tasks] == [*["succeeded"] * number, "failed", *["not started"] * (2 - number)]
    assert began(tmp_path) == sorted(names[: number + 1])
    content = result.to_dict()
    assert json.loads(json.dumps(content)) == content
    assert (content["has_failed"], content["is_detached"], content["run_name"]) == (True, False, plan.run_name)
    assert content["tasks"][number]["state"] == "failed"


def test_nemo_run_knows_the_experiment_afterwards(plan: LaunchPlan, capfd: pytest.CaptureFixture[str]) -> None:
    submit(plan, tasks=small_tasks(plan, check=3))
    capfd.readouterr()
    experiment = run.Experiment.from_id(plan.run_name)

    assert type(experiment) is run.Experiment
    assert [job.id for job in experiment.jobs] == ["build", "check", "train"]
    statuses = experiment.status(return_dict=True)
    assert [statuses[name]["status"].name for name in ("build", "check")] == ["SUCCEEDED", "FAILED"]
    experiment.status()
    assert "build" in capfd.readouterr().out


def test_standard_output_stays_clean_and_logging_as_it_was(plan: LaunchPlan, capfd: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    submit(plan, tasks=small_tasks(plan), follow=True)
    captured = capfd.readouterr()

    assert captured.out == ""
    assert [f"this is {name}" in captured.err for name in ("build", "check", "train")] == [True] * 3
    assert (list(root.handlers), root.level) == before


def test_a_job_without_a_log_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that Slurm cancels before it starts has no log; nemo-run prints logs in threads of its own."""

    def read(what: Any) -> None:
        thread = threading.Thread(target=what)
        thread.start()
        thread.join()

    def lines(*_: object, **__: object) -> Any:
        raise FileNotFoundError("no log")

    tracebacks: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", tracebacks.append)
    errors: Queue[Exception] = Queue()
    handle = "slurm_tunnel://nemo_run/1"
    runner: Any = SimpleNamespace(log_lines=lines)
    printing = partial(print_log_lines, sys.stderr, runner, handle, "train", 0, "", True, errors, None)
    with _log_errors_once():
        read(printing)
        assert tracebacks == []
        assert str(errors.get_nowait()) == "no log"
        read(lines)
        assert len(tracebacks) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_what_runs_here(plan: LaunchPlan, tmp_path: Path, number: signal.Signals) -> None:
    handlers = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def interrupt() -> None:
        child = tmp_path / "check.child"
        try:
            wait_until(lambda: child.exists() and child.read_text())
        finally:
            os.kill(os.getpid(), number)

    sender = threading.Thread(target=interrupt)
    sender.start()
    with pytest.raises(LaunchInterrupt) as interrupted:
        submit(plan, tasks=small_tasks(plan, check="sleep"))
    sender.join()

    assert isinstance(interrupted.value, KeyboardInterrupt)
    assert [task.state for task in interrupted.value.result.tasks] == ["succeeded", "cancelled", "not started"]
    assert interrupted.value.code == 128 + number
    for name in ("check.began", "check.child"):  # the child is in a session of its own, as those of torchrun
        wait_until(lambda name=name: not is_running((tmp_path / name).read_text()))
    assert {one: signal.getsignal(one) for one in handlers} == handlers


def test_launches_from_another_thread(plan: LaunchPlan) -> None:
    found: list[LaunchResult] = []
    thread = threading.Thread(target=lambda: found.append(submit(plan, tasks=small_tasks(plan))))
    thread.start()
    thread.join(120)

    assert [task.state for task in found[0].tasks] == ["succeeded"] * 3


def test_what_nemo_run_cannot_start_is_explained(plan: LaunchPlan, tmp_path: Path) -> None:
    tasks = small_tasks(plan)
    tasks[1] = replace(tasks[1], script=replace(tasks[1].script, entrypoint="no-such-python"))

    with pytest.raises(LaunchError, match=r"could not submit .*FileNotFoundError: .*no-such-python"):
        submit(plan, tasks=tasks)
    assert began(tmp_path) == ["build"]


def test_plugins_act_on_their_task(plan: LaunchPlan, tmp_path: Path) -> None:
    tasks = small_tasks(plan)
    tasks[0] = replace(tasks[0], plugins=(Renames(),))
    submit(plan, tasks=tasks)

    assert began(tmp_path) == ["check", "renamed", "train"]


def test_a_plugin_that_refuses_leaves_nothing(plan: LaunchPlan, nemo_home: Path, tmp_path: Path) -> None:
    tasks = small_tasks(plan)
    tasks[2] = replace(tasks[2], plugins=(Renames(),))

    with pytest.raises(LaunchError, match="not like this"):
        submit(plan, tasks=tasks)
    assert began(tmp_path) == []
    assert list(nemo_home.rglob("*.sh")) == []
    assert not (nemo_home / "experiments" / "small").exists()


def test_detaching_is_refused_where_nobody_would_go_on(recipe: SFTRecipe, nemo_home: Path) -> None:
    there = ClusterConfig.from_mapping({"executor": least_executor("lepton"), "workspace": "/w"})
    for cluster, message in (
        ("local", "the build task runs on this machine .local. and ends with this command"),
        (there, "only Slurm itself runs build, check, train in order"),
    ):
        with pytest.raises(ConfigError, match=message):
            submit(plan_launch(recipe, cluster), detach=True)
    assert not nemo_home.exists()


@pytest.mark.parametrize("field", ["NEMORUN_HOME", "workspace"])
def test_unwritable_folders_are_named(recipe: SFTRecipe, nemo_home: Path, tmp_path: Path, field: str) -> None:
    (tmp_path / "file").write_text("")
    broken = str(tmp_path / "file" / "below")
    if field == "NEMORUN_HOME":
        set_nemorun_home(broken)
    plan = plan_launch(recipe, "local", cluster_overrides={"workspace": broken} if field == "workspace" else {})

    with pytest.raises(ConfigError, match=f"{field} is .*below.*cannot be written"):
        submit(plan, tasks=small_tasks(plan))
    assert began(tmp_path) == []


def test_torchrun_has_to_be_there(recipe: SFTRecipe, nemo_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_launch(recipe, "torchrun")
    monkeypatch.setattr("shutil.which", lambda *arguments, **options: None)

    with pytest.raises(ConfigError, match="torchrun is neither in"):
        submit(plan)


def test_experiments_are_nemo_run_s_own_and_copy_no_settings(plan: LaunchPlan, nemo_home: Path) -> None:
    experiment = make_experiment(plan)

    assert type(experiment) is run.Experiment
    assert not nemo_home.exists()
    assert experiment.to_config().serialize_metadata_for_scripts is False


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    with restore_signals():
        yield


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_noted_signal_is_raised_as_soon_as_signals_are_caught_and_a_second_one_at_once(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    interruption = Interruption()
    interruption.note()

    os.kill(os.getpid(), number)

    assert (interruption.has_come, interruption.code) == (True, 128 + number)
    assert capfd.readouterr().err.startswith("interrupted: ")
    for raises in (lambda: os.kill(os.getpid(), number), interruption.check, interruption.catch):
        with pytest.raises(KeyboardInterrupt):
            raises()


def test_signals_that_are_ignored_stay_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interruption = Interruption()
    interruption.catch()

    os.kill(os.getpid(), signal.SIGHUP)

    assert not interruption.has_come
