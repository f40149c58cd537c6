"""make_executor: what is derived, refused and exported. Values arrive: tests/contract/test_executors.py."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridgepack.config.cluster import ClusterConfig, load_cluster
from bridgepack.errors import ConfigError
from bridgepack.launching.tasks import export_variables, make_executor
from tests.support.examples import examples
from tests.support.full_clusters import full_cluster

pytestmark = pytest.mark.bridge

SLURM = {"kind": "slurm", "account": "research", "gpus_per_node": 8, "gres": "lustre:1"}


def _slurm(tasks: dict[str, Any] | None = None, **executor: Any) -> ClusterConfig:
    return ClusterConfig.from_mapping({"executor": {**SLURM, **executor}, "workspace": "/shared", "tasks": tasks or {}})


def test_srun_or_torchrun_starts_one_process_for_each_gpu() -> None:
    by_srun = make_executor(_slurm(), "train", num_gpus=16)
    by_torchrun = make_executor(_slurm(launcher={"kind": "torchrun"}), "train", num_gpus=16)
    by_torchrun.get_launcher()

    assert (by_srun.nodes, by_srun.ntasks_per_node, by_srun.gpus_per_node) == (2, 8, 8)
    assert (by_srun.launcher, by_srun.torchrun_nproc_per_node) == (None, None)
    assert (by_torchrun.nnodes(), by_torchrun.nproc_per_node()) == (2, 8)
    assert (by_torchrun.ntasks_per_node, by_torchrun.gpus_per_node) == (1, 8)


@pytest.mark.parametrize(
    ("fields", "name", "value"),
    [
        ({"cpus_per_task": 4}, "srun_args", ["--cpus-per-task=4"]),
        ({"cpus_per_task": 4, "srun_args": ["-c2"]}, "srun_args", ["-c2"]),
        ({"srun_args": ["-v"]}, "srun_args", ["-v"]),
        ({"exclusive": True}, "exclusive", True),
        ({"exclusive": False}, "exclusive", None),
    ],
)
def test_fields_that_nemo_run_takes_in_another_form(fields: dict[str, Any], name: str, value: Any) -> None:
    assert getattr(make_executor(_slurm(**fields), "build"), name) == value


def test_slurm_jobs_are_named_after_the_run() -> None:
    assert make_executor(_slurm(), "build", run_name="math_1").job_name_prefix == "math_1."
    assert make_executor(_slurm(job_name_prefix="ada-"), "build", run_name="math_1").job_name_prefix == "ada-"


def test_small_tasks_get_one_process_without_gpus_and_what_is_written_for_them() -> None:
    cluster = _slurm(launcher={"kind": "torchrun"}, nodes=4, array="0-3%1", segment=2, mem_per_gpu="1G")
    for task in ("build", "check"):
        executor = make_executor(cluster, task, num_gpus=32)  # type: ignore[arg-type]
        assert (executor.nodes, executor.ntasks_per_node, executor.gpus_per_node) == (1, 1, None)
        assert (executor.launcher, executor.array, executor.segment, executor.mem_per_gpu) == (None, None, None, None)
        assert executor.gres == "lustre:1"

    own = {"gpus_per_node": 1, "gres": "gpu:1", "launcher": {"kind": "torchrun"}}
    executor = make_executor(_slurm({"check": {"executor": own}}), "check", num_gpus=8)

    assert (executor.gpus_per_node, executor.gres, executor.torchrun_nproc_per_node) == (1, "gpu:1", 1)
    assert type(executor.launcher).__name__ == "Torchrun"


def test_ray_finds_its_head() -> None:
    own = {"launcher": {"kind": "slurm_ray"}, "nodes": 4}
    executor = make_executor(_slurm({"build": {"executor": own}}), "build")

    assert executor.nodes == 4
    assert executor.env_vars == {"HEAD_NODE_ADDR": "$head_node_ip"}


def test_local_tasks_use_this_environment() -> None:
    executor = make_executor(load_cluster("torchrun"), "train", num_gpus=2)

    assert executor.env_vars == {"PATH": str(Path(sys.executable).parent)}
    assert executor.ntasks_per_node == 2
    own = load_cluster("local", {"executor.env_vars.PATH": "/opt/bin"})
    assert make_executor(own, "train").env_vars == {"PATH": "/opt/bin"}


def test_references_are_looked_up_where_the_launch_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = _slurm(env_vars={"TOKEN": "${env:LAUNCH_TOKEN}"}, comment="${env:LAUNCH_COMMENT}")
    monkeypatch.setenv("LAUNCH_TOKEN", "$1")
    monkeypatch.setenv("LAUNCH_COMMENT", "nightly")
    executor = make_executor(cluster, "train")

    assert (executor.env_vars, executor.comment) == ({"TOKEN": '"\\$1"'}, "nightly")
    monkeypatch.delenv("LAUNCH_COMMENT")
    with pytest.raises(ConfigError, match=r"executor.comment is '\$\{env:LAUNCH_COMMENT\}'; .* export LAUNCH_COMMENT="):
        make_executor(cluster, "train")
    shown = make_executor(cluster, "train", for_display=True)
    assert (shown.env_vars, shown.comment) == ({"TOKEN": "${env:LAUNCH_TOKEN}"}, "${env:LAUNCH_COMMENT}")


def test_nothing_of_the_cluster_changes_and_nothing_is_shared() -> None:
    cluster = ClusterConfig.from_mapping(full_cluster("slurm"))
    before = cluster.model_dump()
    first, second = make_executor(cluster, "train"), make_executor(cluster, "train")
    first.container_mounts.append("/x:/x")
    first.env_vars["X"] = "1"

    assert second.container_mounts == ["/shared:/shared", "/data:/data:ro"]
    assert second.env_vars == {"NCCL_DEBUG": "WARN"}
    assert cluster.model_dump() == before


@pytest.mark.parametrize(
    "needed",
    ["skypilot sky skypilot", "skypilot_jobs sky skypilot", "kubeflow kubernetes kubeflow"],
)
def test_without_its_library_an_executor_says_what_to_install(needed: str) -> None:
    kind, library, extra = needed.split()
    if importlib.util.find_spec(library):
        pytest.skip(f"{library} is installed here")

    with pytest.raises(ConfigError, match=rf"pip install 'nemo-run\[{extra}\]'") as caught:
        make_executor(ClusterConfig.from_mapping(full_cluster(kind)), "train")
    assert kind in str(caught.value).lower()


def _in_bash(value: str) -> str:
    script = f'export X={value}\nprintf "%s" "$X"'
    finished = subprocess.run(["env", "-i", "HOME=/ada", "bash", "-c", script], capture_output=True, check=True)
    return finished.stdout.decode()


@pytest.mark.parametrize(
    ("value", "expected", "printed"),
    [
        ("WARN", "WARN", "WARN"),
        ("/a:/b", "/a:/b", "/a:/b"),
        ("--a --b", '"--a --b"', "--a --b"),
        ("$HOME/cache", "$HOME/cache", "/ada/cache"),
        ("${HOME}/my cache", '"${HOME}/my cache"', "/ada/my cache"),
        ('say "x" \\ `id`', '"say \\"x\\" \\\\ \\`id\\`"', 'say "x" \\ `id`'),
        ("$(id)", '"\\$(id)"', "$(id)"),
        ("${X:-$(id)}", '"\\${X:-\\$(id)}"', "${X:-$(id)}"),
        ("${NONE:-/scratch}/a", "${NONE:-/scratch}/a", "/scratch/a"),
        ("a;b&c|d#e", '"a;b&c|d#e"', "a;b&c|d#e"),
        ("", "", ""),
    ],
)
def test_values_are_one_word(value: str, expected: str, printed: str) -> None:
    (text,) = export_variables({"X": value}, {}).values()

    assert text == expected
    assert _in_bash(text) == printed


def test_a_variable_of_the_launching_shell_is_checked_as_the_files_own_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_ACCOUNT", "a;touch x")
    with pytest.raises(ConfigError, match=r"executor.account is 'a;touch x'; nemo-run writes it unq"):
        make_executor(_slurm(account="${env:SLURM_ACCOUNT}"), "train", num_gpus=8)


def test_the_variables_of_rays_processes_run_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", 'a"$b')
    launcher = {"kind": "slurm_ray", "env_vars": {"A": '$(id) "x" $HOME', "B": "${env:PASSWORD}"}}
    cluster = _slurm({"build": {"executor": {"launcher": launcher}}})

    exports = make_executor(cluster, "build").launcher.template_vars["env_vars"]

    assert exports == 'export A="\\$(id) \\"x\\" $HOME"\nexport B="a\\"\\$b"'


@examples(0.4)
@given(st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0")))
def test_a_variable_that_is_named_means_itself(secret: str) -> None:
    (text,) = export_variables({"X": "<${env:SECRET}>"}, {"SECRET": secret}).values()

    assert _in_bash(text) == f"<{secret}>"
