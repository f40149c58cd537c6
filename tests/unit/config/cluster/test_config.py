"""Cluster files: tasks, overrides, derived values, notes."""

import sys
from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.cluster import ClusterConfig, load_cluster
from bridgepack.config.cluster.executors import KNOWN
from bridgepack.config.cluster.notes import cluster_notes
from bridgepack.errors import ConfigError
from tests.support.full_clusters import EXECUTORS, full_cluster, least_executor

SLURM: dict[str, Any] = {
    "executor": {"kind": "slurm", "account": "research", "time": 60, "gpus_per_node": 8, "env_vars": {"A": "1"}},
    "workspace": "/shared",
}


def _slurm(**executor: Any) -> ClusterConfig:
    return ClusterConfig.from_mapping({**SLURM, "executor": {**SLURM["executor"], **executor}})


@pytest.mark.parametrize("kind", EXECUTORS)
def test_every_kind_loads_and_comes_back_as_written(kind: str) -> None:
    cluster = ClusterConfig.from_mapping(full_cluster(kind))

    assert cluster.executor.kind == kind
    assert ClusterConfig.from_mapping(cluster.override({}).model_dump(mode="json", exclude_unset=True)) == cluster


def test_a_task_lays_its_fields_over_the_executor() -> None:
    tasks = {
        "build": {"executor": {"partition": "cpu", "env_vars": {"B": "2"}}, "env_vars": {"C": "3"}},
        "check": {"executor": {"kind": "local"}},
    }
    cluster = ClusterConfig.from_mapping({**SLURM, "tasks": tasks})
    build = cluster.executor_for("build")

    assert (build.kind, build.model_dump()["partition"], build.model_dump()["time"]) == ("slurm", "cpu", "60")
    assert build.env_vars == {"A": "1", "B": "2", "C": "3"}
    assert cluster.executor_for("check").kind == "local"
    assert cluster.executor_for("check").env_vars == {}
    assert cluster.executor_for("train") == cluster.executor


def test_fields_of_any_class_are_taken_and_kept() -> None:
    values = {"kind": "nemo_run", "class": "mine.Executor", "num_nodes": 2, "queue": {"name": "q"}, "hosts": ["a"]}
    tasks = {"build": {"executor": {"queue": {"size": 1}}}, "check": {"executor": {"class": "SkypilotExecutor"}}}
    cluster = ClusterConfig.from_mapping({"executor": values, "workspace": "/shared", "tasks": tasks})

    assert cluster.shown()["executor"] == values
    assert cluster.override({"executor.queue.name": "r"}).shown()["executor"]["queue"] == {"name": "r"}
    assert cluster.executor_for("build").value("queue") == {"name": "q", "size": 1}
    assert cluster.executor_for("check").value("queue") is None
    assert (cluster.title, cluster.executor.facts.nodes) == ("Executor", "num_nodes")


@pytest.mark.parametrize("kind", KNOWN)
def test_a_short_kind_means_its_class(kind: str) -> None:
    values = full_cluster(kind)
    short = ClusterConfig.from_mapping(values)
    values["executor"] = {**values["executor"], "kind": "nemo_run", "class": KNOWN[kind].class_name}
    cluster = ClusterConfig.from_mapping(values)

    assert cluster.executor.facts == short.executor.facts == KNOWN[kind]
    assert cluster.processes("train") == short.processes("train")


def test_another_kind_of_a_part_begins_anew() -> None:
    cluster = _slurm(launcher={"kind": "torchrun", "rdzv_port": 1000})
    changed = cluster.override({"executor.launcher.kind": "fault_tolerance", "executor.launcher.max_restarts": 2})

    assert changed.executor.launcher.model_dump()["rdzv_port"] == 29500
    assert changed.executor.launcher.model_dump()["max_restarts"] == 2


def test_built_in_names_need_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cluster = load_cluster("torchrun", {"executor.ntasks_per_node": 2})

    assert (cluster.world_size, cluster.is_remote, cluster.title) == (2, False, "torchrun")
    assert cluster.workspace_path == str(tmp_path / "bridgepack-runs")
    assert load_cluster("local").world_size == 1


def test_yaml_and_toml_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "executor: {kind: slurm, account: research, time: 04:00:00}\nworkspace: /shared\n", encoding="utf-8"
    )
    (tmp_path / "c.toml").write_text(
        'workspace = "/shared"\n[executor]\nkind = "slurm"\naccount = "research"\ntime = "04:00:00"\n', encoding="utf-8"
    )

    assert load_cluster(tmp_path / "c.yaml") == load_cluster(tmp_path / "c.toml")
    assert load_cluster(tmp_path / "c.yaml").is_remote


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("locl", None, "Did you mean local?"),
        ("slurm", None, "allowed: FILE.yaml, FILE.toml, local or torchrun."),
        ("missing.yaml", None, "there is no such file."),
        ("empty.yaml", "", "is empty; allowed: sections with named fields (executor, workspace, ...)."),
        ("broken.toml", "a = ", "is not TOML:"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, name: str, text: str | None, expected: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_cluster(str(tmp_path / name) if "." in name else name)

    assert expected in str(caught.value)
    assert "recipe" not in str(caught.value)


def test_the_nearest_file_is_one_of_a_cluster(tmp_path: Path) -> None:
    for name, text in {"slurm_1.yaml": "name: a recipe", "slurm_22.yaml": "executor:\n  kind: local\n"}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError, match=r"there is no such file\. Did you mean '.*/slurm_22\.yaml'\?$"):
        load_cluster(str(tmp_path / "slurm_2.yaml"))
    (tmp_path / "slurm_22.yaml").unlink()
    with pytest.raises(ConfigError, match=r"there is no such file\. Check the path\.$"):
        load_cluster(str(tmp_path / "slurm_2.yaml"))


@pytest.mark.parametrize(
    ("executor", "num_gpus", "expected"),
    [
        ({}, None, (None, 8)),
        ({}, 16, (2, 8)),
        ({}, 4, (1, 4)),
        ({"nodes": 3}, 16, (3, 8)),
        ({"gpus_per_node": None, "nodes": 2}, 8, (2, 4)),
        ({"gpus_per_node": None}, 8, (1, 8)),
        ({"gpus_per_node": None, "ntasks_per_node": 4}, 8, (2, 4)),
        ({"gpus_per_node": None, "gres": "gpu:h100:4"}, 8, (2, 4)),
        ({"gpus_per_node": None, "gres": "lustre:1,gpu:2"}, 8, (4, 2)),
        ({"launcher": {"kind": "torchrun"}}, 16, (2, 8)),
        ({"launcher": {"kind": "torchrun"}, "torchrun_nproc_per_node": 4}, 8, (2, 4)),
        ({"launcher": {"kind": "torchrun"}, "ntasks_per_node": 2}, 8, (4, 2)),
    ],
)
def test_slurm_processes_by_file_then_recipe(
    executor: dict[str, Any], num_gpus: int | None, expected: tuple[int | None, int]
) -> None:
    values = {name: value for name, value in {**SLURM["executor"], **executor}.items() if value is not None}
    processes = ClusterConfig.from_mapping({**SLURM, "executor": values}).processes("train", num_gpus)

    assert (processes.num_nodes, processes.num_per_node) == expected


@pytest.mark.parametrize(
    ("kind", "executor", "num_gpus", "expected"),
    [
        ("local", {}, 8, (1, 1, None)),
        ("torchrun", {}, 8, (1, 8, None)),
        ("torchrun", {"nodes": 2}, 8, (2, 4, None)),
        ("docker", {}, 16, (1, 16, 16)),
        ("docker", {"num_gpus": -1, "ntasks_per_node": 4}, 16, (1, 4, -1)),
        ("skypilot", {"gpus": "H100", "gpus_per_node": 8}, 16, (2, 8, 8)),
        ("skypilot", {"gpus": "H100"}, 4, (1, 4, 4)),
        ("skypilot", {"instance_type": "p5.48xlarge", "torchrun_nproc_per_node": 8}, 16, (2, 8, None)),
        ("kubeflow", {"gpus_per_node": 8}, 16, (2, 8, 8)),
        ("kubeflow", {"nprocs_per_node": 2}, 4, (2, 2, None)),
        ("dgxcloud", {"gpus_per_node": 4, "nprocs_per_node": 2}, 8, (2, 4, 4)),
        ("dgxcloud", {"nprocs_per_node": 2}, 8, (4, 2, None)),
        ("lepton", {"nodes": 2}, 8, (2, 4, 4)),
        ("lepton", {"nodes": 2, "gpus_per_node": 8, "launcher": {"kind": "none"}}, 8, (2, 1, 8)),
    ],
)
def test_processes_of_the_other_executors(
    kind: str, executor: dict[str, Any], num_gpus: int, expected: tuple[int, int, int | None]
) -> None:
    cluster = ClusterConfig.from_mapping({"executor": least_executor(kind, **executor), "workspace": "/shared"})
    processes = cluster.processes("train", num_gpus)

    assert (processes.num_nodes, processes.num_per_node, processes.gpus_per_node) == expected
    assert cluster.processes("build", num_gpus).world_size == 1


@pytest.mark.parametrize(
    ("executor", "num_gpus", "expected"),
    [
        ({}, 12, "executor has 8 GPUs or processes per node; the recipe needs 12 GPUs"),
        ({"nodes": 3, "gpus_per_node": None}, 8, "executor.nodes is 3; the recipe needs 8 GPUs"),
        ({"gpus_per_node": None}, 16, "executor.gpus_per_node is not set; the recipe needs 16 GPUs"),
    ],
)
def test_gpus_that_fill_no_whole_nodes_are_refused(executor: dict[str, Any], num_gpus: int, expected: str) -> None:
    values = {name: value for name, value in {**SLURM["executor"], **executor}.items() if value is not None}
    cluster = ClusterConfig.from_mapping({**SLURM, "executor": values})

    with pytest.raises(ConfigError) as caught:
        cluster.processes("train", num_gpus)
    assert expected in str(caught.value)


def test_small_tasks_are_one_process() -> None:
    cluster = ClusterConfig.from_mapping({**SLURM, "tasks": {"build": {"executor": {"ntasks_per_node": 4}}}})

    assert cluster.processes("check", 16).gpus_per_node is None
    with pytest.raises(ConfigError, match=r"tasks.build.executor.ntasks_per_node is 4; allowed: 1. build is one proc"):
        cluster.processes("build", 16)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"executor": {"kind": "slurm", "account": "a"}}, "executor.time is not set: nemo-run gives a job ten minutes"),
        (
            {"executor": {**SLURM["executor"], "container_image": "i", "container_mounts": ["/data:/data"]}},
            "executor: workspace /shared is in no folder that the container mounts (/data);",
        ),
        ({"executor": {**SLURM["executor"], "container_mounts": ["/a:/a"]}}, "has no effect without container_image"),
        ({"executor": {**SLURM["executor"], "env_vars": {"http_proxy": "x"}}}, "nemo-run exports it as HTTP_PROXY"),
        ({"executor": {**SLURM["executor"], "env_vars": {"HF_TOKEN": "x"}}}, "HF_TOKEN is a secret in plain text."),
        (
            {"executor": {**SLURM["executor"], "env_vars": {"HF_TOKEN": "${env:HF_TOKEN}"}}},
            "value into the job's script",
        ),
        ({"executor": {**SLURM["executor"], "ntasks_per_node": 4}}, "ntasks_per_node is 4 and gpus_per_node 8"),
        ({"executor": SLURM["executor"], "tasks": {"build": {"executor": {"kind": "local"}}}}, "be the same folder"),
        ({"executor": {"kind": "local", "ntasks_per_node": 2}}, "has no effect without torchrun."),
        ({"executor": {"kind": "skypilot"}}, "is on the local disk of one machine."),
        ({"executor": {"kind": "skypilot"}}, "SkyPilot leaves the cluster running."),
        ({"executor": EXECUTORS["kubeflow"]}, "writes TrainJobs of Kubeflow Trainer 2.1"),
        ({"executor": {**EXECUTORS["lepton"], "mounts": [{"mount_path": "/shared/nemo_run"}]}}, "(/shared/nemo_run)"),
        ({"executor": {"kind": "torchrun"}, "python": "/opt/python"}, "torchrun uses the Python"),
    ],
)
def test_notes_say_what_may_surprise(values: dict[str, Any], expected: str) -> None:
    notes = cluster_notes(ClusterConfig.from_mapping({"workspace": "/shared", **values}))

    assert [note for note in notes if expected in note]
    assert len(set(notes)) == len(notes)


def test_without_nemo_run_a_note_says_that_fields_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ClusterConfig.from_mapping({"executor": {"kind": "nemo_run", "class": "X"}, "workspace": "/shared"})
    note = "executor: nemo-run is not installed here; the launch compares the fields with those of X."

    monkeypatch.setitem(sys.modules, "nemo_run", None)
    assert note in cluster_notes(cluster)


def test_a_plain_file_has_no_notes() -> None:
    mounted = _slurm(
        container_image="i", container_mounts=["/shared:/shared"], env_vars={"TOKENIZERS_PARALLELISM": "0"}
    )

    assert cluster_notes(_slurm()) == ()
    assert cluster_notes(mounted) == ()
    assert cluster_notes(load_cluster("torchrun")) == ()


def test_shown_hides_secrets() -> None:
    cluster = ClusterConfig.from_mapping(full_cluster("dgxcloud", client_secret="hush", env_vars={"HF_TOKEN": "hush"}))

    assert "hush" not in str(cluster.shown())
    assert "hush" not in repr(cluster.executor).replace("'HF_TOKEN': 'hush'", "")
    assert cluster.shown()["executor"]["project_name"] == "research"
