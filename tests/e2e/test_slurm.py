"""`bridgepack launch` on a real Slurm of one node: order, training with srun's ranks, failures, interruption.

The cluster file has no container image, as there is no pyxis; CPUs stand for GPUs, as tests/support says. While the
partition `cpu` is down its jobs wait, which gives a test time to look.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bridgepack.api import build
from bridgepack.config.recipe.recipe import SFTRecipe
from tests.support.host_forks import hold
from tests.support.launched_training import task_environment
from tests.support.launches import ended, states
from tests.support.processes import started, wait_until
from tests.support.slurm import Slurm, SlurmUnavailableError, running_slurm
from tests.support.small_builds import write_conversations, write_recipe
from tests.support.tiny_recipes import VOCAB_SIZE, tiny_recipe, write_model

pytestmark = [pytest.mark.bridge, pytest.mark.full]

NUM_STEPS = 2
NUM_RANKS = 2
#: Rules of a machine that trains on GPUs, and the settings that spare one without.
_IGNORED = {"BP916": "attention of the tests takes packed rows"}
_IGNORED_ON_NODES = {
    "BP861": "the first process writes the weights",
    "BP984": "nothing needs TransformerEngine on CPU",
}
_OUT_OF_TIME_AT_FIRST = """\
import os, sys
sys.exit(os.environ["SLURM_ARRAY_TASK_ID"] == "0" and os.environ["SLURM_PROCID"] == "0")
"""
#: The command, which asks this Slurm for states more often than one that others use, too.
_PROGRAM = """\
from bridgepack.launching import watching
watching._POLL_ELSEWHERE_S = 0.5
from bridgepack.cli import main
main()
"""
#: Slurm's sbatch, but the first job that it has submitted is told to nobody before `submitted` is renamed.
_SBATCH_WAITS_ONCE = """\
#!/bin/sh
"{sbatch}" "$@" || exit
[ -e "{place}.once" ] && exit
touch "{place}.once" "{place}"
while [ -e "{place}" ]; do sleep 0.1; done
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """A cluster with what a user has there: `recipe.yaml` trains two steps on two GPUs."""

    slurm: Slurm
    folder: Path  # for everything; all nodes see it

    @property
    def recipe(self) -> Path:
        return self.folder / "recipe.yaml"

    def start(self, *arguments: object, commands: Path | None = None) -> subprocess.Popen[str]:
        """Start `bridgepack launch` on this cluster, with commands of a folder before those of Slurm."""
        own = {**task_environment(self.folder), "NEMORUN_HOME": str(self.folder / "nemo-run")}
        variables = self.slurm.environment(**own)
        if commands is not None:
            variables["PATH"] = os.pathsep.join((str(commands), variables["PATH"]))
        command = (sys.executable, "-c", _PROGRAM, "launch", *arguments, "--cluster", "slurm.yaml", "--json")
        return started(*command, folder=self.folder, variables=variables)

    def launch(self, *arguments: object) -> tuple[int, dict[str, Any], str]:
        """Return the exit code of a launch, what it printed as JSON, and what it said beside."""
        return ended(self.start(*arguments))

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Let jobs of the partition `cpu` wait inside, and run afterwards."""
        self.slurm.run("scontrol", "update", "PartitionName=cpu", "State=DOWN")
        try:
            yield
        finally:
            self.slurm.run("scontrol", "update", "PartitionName=cpu", "State=UP")


def jobs(result: dict[str, Any]) -> dict[str, str]:
    return {task["name"]: task["job"] for task in result["tasks"]}


def log_text(slurm: Slurm, job: str) -> str:
    """Return what the processes of a job printed."""
    folder = Path(slurm.job(job)["StdOut"]).parent
    return "".join(path.read_text(errors="replace") for path in folder.glob(f"log-*_{job}_*.out"))


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    try:
        with running_slurm() as cluster:
            hold()  # ranks of srun are its forks
            yield cluster
    except SlurmUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with conversations, a tokenizer and a model's config."""
    folder = write_conversations(tmp_path_factory.mktemp("data"), limit=200, vocab_size=VOCAB_SIZE)
    write_model(folder / "dense", "dense")
    return folder


def recipe_for(data: Path, folder: Path) -> SFTRecipe:
    places = {"pretrained": str(folder / "weights"), "folder": str(folder / "checkpoints")}
    return tiny_recipe(data, "dense", "full").override(
        {
            "parallelism.num_gpus": NUM_RANKS,
            "schedule": {"train_iters": NUM_STEPS, "eval_iters": 1, "eval_interval": NUM_STEPS},
            "checkpoint": {**places, "save_interval": NUM_STEPS},
            "logging": {"tensorboard_dir": str(folder / "logs")},
            "ignore": {**_IGNORED, **_IGNORED_ON_NODES},
        }
    )


@pytest.fixture(scope="module")
def packs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the packs of the recipe."""
    folder = tmp_path_factory.mktemp("packs")
    return build(recipe_for(data, folder), output=folder / "packs").output


@pytest.fixture
def site(slurm: Slurm, data: Path, tmp_path: Path) -> Iterator[Site]:
    write_recipe(tmp_path / "recipe.yaml", recipe_for(data, tmp_path))
    small = {"executor": {"partition": "cpu"}}
    cluster = {
        "executor": {"kind": "slurm", "account": "team", "partition": "gpu", "gpus_per_node": 2, "time": "00:10:00"},
        "workspace": str(tmp_path / "workspace"),
        "python": sys.executable,
        "tasks": {"build": small, "check": small},
    }
    (tmp_path / "slurm.yaml").write_text(json.dumps(cluster))
    yield Site(slurm=slurm, folder=tmp_path)
    slurm.cancel_all()


def test_a_detached_launch_builds_checks_and_trains_in_order(site: Site) -> None:
    slurm = site.slurm
    with site.waiting():
        earlier = slurm.run("sbatch", "--parsable", "--partition=cpu", "--output=/dev/null", "--wrap=true").strip()
        dependency = f'executor.dependencies=["{earlier}"]'
        code, result, _ = site.launch(site.recipe, "--detach", "--cluster-set", dependency)
        job = jobs(result)
        assert (code, result["is_detached"], slurm.job(job["build"])["JobState"]) == (0, True, "PENDING")
        submitted = {name: slurm.job(number) for name, number in job.items()}

    assert {name: (about["Partition"], about["Dependency"]) for name, about in submitted.items()} == {
        "build": ("cpu", f"afterok:{earlier}(unfulfilled)"),
        "check": ("cpu", f"afterok:{job['build']}(unfulfilled)"),
        "train": ("gpu", f"afterok:{job['check']}(unfulfilled)"),
    }
    assert "gres/gpu=2" in submitted["train"]["TRES"]
    assert "gres/gpu" not in submitted["build"]["TRES"] + submitted["check"]["TRES"]

    ids = list(job.values())
    wait_until(lambda: "" not in slurm.states(*ids) and not slurm.is_any_alive(*ids), "the run ends", limit_s=600)
    assert slurm.states(*ids) == ["COMPLETED"] * 3, log_text(slurm, ids[-1])[-3000:]
    times = [slurm.job(number) for number in ids]
    assert times[0]["EndTime"] <= times[1]["StartTime"] <= times[1]["EndTime"] <= times[2]["StartTime"]
    _assert_trained(site, result, log_text(slurm, job["train"]))


def _assert_trained(site: Site, result: dict[str, Any], log: str) -> None:
    """Assert that two ranks of srun trained two steps on the packs that the run's folder names."""
    run_folder = Path(result["run_folder"])
    facts = {name: json.loads((run_folder / name).read_text()) for name in ("artifact.json", "run.json", "launch.json")}
    assert Path(facts["artifact.json"]["path"], "manifest.json").is_file()
    assert facts["run.json"]["fingerprint"] == facts["artifact.json"]["fingerprint"]
    assert (facts["run.json"]["world_size"], facts["launch.json"]["run_name"]) == (NUM_RANKS, run_folder.name)
    reports = [json.loads(path.read_text()) for path in sorted((run_folder / "records").glob("check-*.json"))]
    assert len(reports) == 2  # of the check task, and of the training just before it begins
    assert re.findall(r"iteration +(\d)/ +2 \|.*lm loss: ", log) == ["1", "2"]
    assert (site.folder / "checkpoints" / "latest_checkpointed_iteration.txt").read_text().strip() == str(NUM_STEPS)


def test_packs_that_broke_after_submission_keep_training_from_starting(site: Site, packs: Path) -> None:
    slurm = site.slurm
    packs = shutil.copytree(packs, site.folder / "packs")
    with site.waiting():
        launch = site.start(site.recipe, "--artifact", packs)
        wait_until(lambda: len(slurm.queued()) == 2 or launch.poll() is not None, "two jobs are queued")
        shard = next(packs.rglob("*.parquet"))
        shard.write_bytes(shard.read_bytes()[:-100])
    code, result, errors = ended(launch)

    assert (code, states(result)) == (1, {"check": "failed", "train": "cancelled"}), errors
    check, train = jobs(result)["check"], jobs(result)["train"]
    wait_until(lambda: slurm.states(check, train) == ["FAILED", "CANCELLED"], "accounting says so")
    assert (slurm.job(train)["NodeList"], log_text(slurm, train)) == ("", "")
    assert shard.name in log_text(slurm, check)
    assert not (Path(result["run_folder"]) / "run.json").exists()


def test_a_failed_build_keeps_check_and_training_from_starting(site: Site) -> None:
    code, result, errors = site.launch(site.recipe, "--set", f"data.train={site.folder}/missing.jsonl")
    assert (code, states(result)) == (1, {"build": "failed", "check": "cancelled", "train": "cancelled"}), errors
    assert "missing.jsonl" in log_text(site.slurm, jobs(result)["build"])


def test_an_interrupted_launch_says_what_it_leaves_on_the_cluster(site: Site) -> None:
    slurm = site.slurm
    with site.waiting():
        launch = site.start(site.recipe, "--follow")
        wait_until(lambda: len(slurm.queued()) == 3 or launch.poll() is not None, "three jobs are queued")
        os.kill(launch.pid, signal.SIGINT)
        code, result, errors = ended(launch)
        left = jobs(result)
        assert code == 130, errors
        assert [slurm.job(job)["JobState"] for job in left.values()] == ["PENDING"] * 3
        assert all(f"{name} (job {job})" in errors for name, job in left.items())
        slurm.run("scancel", left["build"])
        wait_until(lambda: not slurm.queued(), "the jobs that waited for the first one are cancelled, too")


def test_an_interrupt_while_nemo_run_submits_is_told_with_every_job(site: Site) -> None:
    slurm, commands, submitted = site.slurm, site.folder / "slow", site.folder / "submitted"
    commands.mkdir()
    sbatch = commands / "sbatch"
    sbatch.write_text(_SBATCH_WAITS_ONCE.format(sbatch=slurm.folder / "bin" / "sbatch", place=submitted))
    sbatch.chmod(0o755)
    with site.waiting():
        launch = site.start(site.recipe, commands=commands)
        wait_until(submitted.exists, "a job is submitted", process=launch)
        os.kill(launch.pid, signal.SIGINT)
        submitted.rename(site.folder / "interrupted")
        code, result, errors = ended(launch)
        left = jobs(result)
        assert code == 130, errors
        assert "interrupted: stops once nemo-run has submitted" in errors
        assert len(left) == len(set(left.values())) == len(slurm.queued()) == 3
        assert all(f"{name} (job {job})" in errors for name, job in left.items())
        slurm.run("scancel", *left.values())
        wait_until(lambda: not slurm.queued(), "nothing is left")


def test_an_array_trains_one_job_after_the_other_and_its_last_job_decides(site: Site, packs: Path) -> None:
    script = site.folder / "train.py"
    script.write_text(_OUT_OF_TIME_AT_FIRST)
    array = ("--cluster-set", "executor.array=0-1%1", "--cluster-set", f"train_script={script}")
    code, result, errors = site.launch(site.recipe, "--artifact", packs, "--skip", "check", *array, "--follow")

    assert (code, states(result)) == (0, {"train": "succeeded"}), errors
    number = jobs(result)["train"]
    wait_until(lambda: all(site.slurm.states(f"{number}_0", f"{number}_1")), "accounting knows both jobs")
    assert site.slurm.states(f"{number}_0", f"{number}_1") == ["FAILED", "COMPLETED"]
    times = [site.slurm.job(f"{number}_{index}") for index in range(2)]
    assert times[0]["EndTime"] <= times[1]["StartTime"]
