"""Cluster files: tasks, overrides, derived values, notes, and one message for each mistake."""

import re
from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.cluster import ClusterConfig, load_cluster
from bridgepack.config.cluster.executors import FACTS, KNOWN
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
    build, check = cluster.executor_for("build"), cluster.executor_for("check")

    assert (build.kind, build.model_dump()["partition"], build.model_dump()["time"]) == ("slurm", "cpu", "60")
    assert build.env_vars == {"A": "1", "B": "2", "C": "3"}
    assert (check.kind, check.env_vars) == ("local", {})
    assert cluster.executor_for("train") == cluster.executor

    launched = _slurm(launcher={"kind": "torchrun", "rdzv_port": 1000})
    other = launched.override({"executor.launcher.kind": "fault_tolerance", "executor.launcher.max_restarts": 2})
    launcher = other.executor.launcher.model_dump()  # of another kind, which begins anew
    assert (launcher["rdzv_port"], launcher["max_restarts"]) == (29500, 2)


def test_fields_of_any_class_are_taken_and_kept() -> None:
    values = {"kind": "nemo_run", "class": "mine.Executor", "num_nodes": 2, "queue": {"name": "q"}, "hosts": ["a"]}
    tasks = {"build": {"executor": {"queue": {"size": 1}}}, "check": {"executor": {"class": "SkypilotExecutor"}}}
    cluster = ClusterConfig.from_mapping({"executor": values, "workspace": "/shared", "tasks": tasks})

    assert cluster.display_values()["executor"] == values
    assert cluster.override({"executor.queue.name": "r"}).display_values()["executor"]["queue"] == {"name": "r"}
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


def test_built_in_names_need_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cluster = load_cluster("torchrun", {"executor.ntasks_per_node": 2})

    assert (cluster.world_size, cluster.is_remote, cluster.title) == (2, False, "torchrun")
    assert cluster.workspace_path == str(tmp_path / "bridgepack-runs")
    assert load_cluster("local").world_size == 1


def test_yaml_and_toml_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("executor: {kind: slurm, account: research, time: 04:00:00}\nworkspace: /shared\n")
    toml = 'workspace = "/shared"\n[executor]\nkind = "slurm"\naccount = "research"\ntime = "04:00:00"\n'
    (tmp_path / "c.toml").write_text(toml)

    assert load_cluster(tmp_path / "c.yaml") == load_cluster(tmp_path / "c.toml")
    assert load_cluster(tmp_path / "c.yaml").is_remote


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("locl", None, "Did you mean local?"),
        ("slurm", None, "allowed: FILE.yaml, FILE.toml, local or torchrun."),
        ("missing.yaml", None, "Check the path."),
        ("slurm_2.yaml", "executor:\n  kind: local\n", "slurm_22.yaml'?"),
        ("empty.yaml", "", "sections with named fields (executor, workspace, ...)."),
        ("broken.toml", "a = ", "is not TOML:"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, name: str, text: str | None, expected: str) -> None:
    if text is not None:
        (tmp_path / name.replace("_2", "_22")).write_text(text, encoding="utf-8")
    (tmp_path / "slurm_1.yaml").write_text("name: a recipe", encoding="utf-8")  # never what is meant
    with pytest.raises(ConfigError) as caught:
        load_cluster(str(tmp_path / name) if "." in name else name)

    assert expected in str(caught.value)
    assert "recipe" not in str(caught.value)


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
        ({}, 12, "the recipe needs 12 GPUs"),
        ({"nodes": 3, "gpus_per_node": None}, 8, "executor.nodes is 3; the recipe needs 8 GPUs"),
        ({"gpus_per_node": None}, 16, "the recipe needs 16 GPUs"),
    ],
)
def test_slurm_processes_by_file_then_recipe(executor: dict[str, Any], num_gpus: int | None, expected: Any) -> None:
    values = {name: value for name, value in {**SLURM["executor"], **executor}.items() if value is not None}
    cluster = ClusterConfig.from_mapping({**SLURM, "executor": values})

    if isinstance(expected, str):
        with pytest.raises(ConfigError, match=re.escape(expected)):
            cluster.processes("train", num_gpus)
    else:
        processes = cluster.processes("train", num_gpus)
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


def test_small_tasks_are_one_process() -> None:
    cluster = _slurm().override({"tasks.build.executor.ntasks_per_node": 4})

    assert cluster.processes("check", 16).gpus_per_node is None
    with pytest.raises(ConfigError, match=r"tasks.build.executor.ntasks_per_node is 4; allowed: 1. build is one proc"):
        cluster.processes("build", 16)
    with pytest.raises(ConfigError, match=r"^tasks\.build\.executor\.partiton is not a field .*slurm; "):
        ClusterConfig.from_mapping({**SLURM, "tasks": {"build": {"executor": {"partiton": "cpu"}}}})


def test_shown_hides_secrets() -> None:
    cluster = ClusterConfig.from_mapping(full_cluster("dgxcloud", client_secret="hush", env_vars={"HF_TOKEN": "hush"}))

    assert "hush" not in str(cluster.display_values())
    assert "hush" not in repr(cluster.executor).replace("'HF_TOKEN': 'hush'", "")
    assert cluster.display_values()["executor"]["project_name"] == "research"


BARE = {"kind": "slurm", "account": "research"}
DOCKER = {"kind": "docker", "container_image": "i"}
SSH = {"kind": "ssh", "host": "h", "user": "u"}
UNEVEN = {"kind": "pattern", "include_pattern": ["a", "b"], "relative_path": "c"}
NO_VOLUME = {**least_executor("dgxcloud", pvc_nemo_run_dir="/runs"), "pvcs": []}
FAULT_TOLERANT = {"resource_shape": "s", "node_group": "g", "launcher": {"kind": "fault_tolerance"}}


@pytest.mark.parametrize(
    ("executor", "expected"),
    [
        ({**DOCKER, "account": "a"}, "slurm has it. Set executor.kind to slurm"),
        ({**DOCKER, "container_mounts": ["/a:/a"]}, "slurm has it. Did you mean container_image? "),
        ({**DOCKER, "nodes": 2}, "executor.nodes is not a field"),
        ("slurm", "executor is 'slurm'"),
        ({"kind": "slrum"}, "Did you mean slurm?"),
        ({"kind": "slurm"}, "that the jobs are"),
        ({**BARE, "time": "4h"}, "executor.time is '4h'; allowed: MINUTES, MINUTES:SECONDS, HOURS:MINUTES:SECONDS,"),
        ({**BARE, "container_mounts": ["/a"]}, "executor.container_mounts.0 is '/a'; allowed: SOURCE:TARGET or"),
        ({**BARE, "container_mounts": ["a:/b"]}, "SOURCE absolute"),
        ({**BARE, "dependencies": ["job"]}, "executor.dependencies.0 is 'job'"),
        ({**BARE, "array": "a"}, "executor.array is 'a'; allowed: indices and ranges"),
        ({**BARE, "time": "٤:00:00"}, "executor.time is '٤:00:00'; allowed: MINUTES"),
        ({**BARE, "time": "UNL\u0131MITED"}, "allowed: MINUTES"),
        ({**BARE, "array": "٣"}, "executor.array is '٣'; allowed: indices and ranges"),
        ({**BARE, "dependencies": ["٣"]}, "executor.dependencies.0 is '٣'"),
        ({**BARE, "array": "0-3"}, "executor.array is '0-3'"),
        ({**BARE, "array": "0-3%2"}, "Write 0-3%1."),
        ({**BARE, "launcher": "torchrun"}, "Write executor.launcher: {kind: torchrun}."),
        ({**BARE, "launcher": {"kind": "slurm_template"}}, "executor.launcher.template_path and template_inline: nei"),
        ({**BARE, "launcher": {"kind": "slurm_ray"}}, "Set it for build: tasks.build.executor.launcher."),
        ({**BARE, "heterogeneous": True}, "Remove it."),
        ({**BARE, "tunnel": SSH}, "executor.tunnel.job_dir is missing"),
        ({**BARE, "tunnel": {**SSH, "job_dir": "jobs"}}, "allowed: an absolute path"),
        ({**BARE, "packager": {"kind": "hybrid", "sub_packagers": {"a": {"kind": "patern"}}}}, "a.kind is 'patern'; "),
        ({**BARE, "packager": UNEVEN}, "executor.packager.include_pattern has 2 and relative_path has 1;"),
        ({"kind": "local", "nodes": 2}, "executor.nodes is 2"),
        ({"kind": "torchrun", "launcher": {"kind": "none"}}, "Allowed here: torchrun, fault_tolerance."),
        ({"kind": "local", "launcher": {"kind": "slurm_ray"}}, "nemo-run supports it for slurm"),
        ({"kind": "skypilot", "packager": {"kind": "none"}}, "not for skypilot. Allowed here: git_archive. Use one"),
        ({"kind": "nemo_run"}, "a name in nemo_run, e.g. SkypilotExecutor"),
        ({"kind": "nemo_run", "class": "a b"}, "executor.class is 'a b'; allowed: text matching"),
        ({"kind": "nemo_run", "class": "SlurmExecutor"}, "Write kind: slurm."),
        ({"kind": "lepton", "class": "X"}, "short for LeptonExecutor. Write kind: nemo_run."),
        ({"kind": "skypilot", "num_nodes": "two"}, "executor.num_nodes is 'two'; allowed: a whole number"),
        ({"kind": "nemo_run", "class": "X", "nodes": True}, "executor.nodes is True"),
        ({"kind": "nemo_run", "class": "KubeflowExecutor", "image": "i"}, "executor.workdir_pvc is missing; a launch"),
        ({"kind": "nemo_run", "class": "LeptonExecutor", **FAULT_TOLERANT}, "Allowed here: none, torchrun."),
        ({**DOCKER, "volumes": ["/a:b"]}, "volumes.0 is '/a:b'; allowed: SOURCE:TARGET"),
        ({**BARE, "env_vars": {"A B": "1"}}, "executor.env_vars.A B"),
        ({**BARE, "account": "a\nb"}, "executor.account is 'a\\nb'"),
        ({**BARE, "account": "a;touch x"}, "executor.account is 'a;touch x'"),
        ({**BARE, "account": "a$(id)"}, "executor.account is 'a$(id)'; nemo-run"),
        ({**BARE, "job_name_prefix": "a b"}, "executor.job_name_prefix is 'a b'; nemo-run"),
        ({**BARE, "job_details": {"job_name": "`id`"}}, "executor.job_details.job_name is '`id`'; nemo-run"),
        ({**BARE, "job_details": {"folder": "/a&b"}}, "executor.job_details.folder is '/a&b'; nemo-run"),
        ({**BARE, "tunnel": {"kind": "local", "job_dir": "/a;b"}}, "executor.tunnel.job_dir is '/a;b'; nemo-run"),
        ({**BARE, "tunnel": {**SSH, "job_dir": "/a", "host": "h;id"}}, "executor.tunnel.host is 'h;id'; nemo-run"),
        ({**BARE, "tunnel": {**SSH, "job_dir": "/a", "identity": "k'"}}, 'executor.tunnel.identity is "k\'"; nemo-run'),
        ({**BARE, "mem": "1\ntouch x"}, "executor.mem is '1\\ntouch x'"),
        ({**BARE, "additional_parameters": {"mail id": "x"}}, "executor.additional_parameters.mail"),
        ({**BARE, "additional_parameters": {"mail_type": "END\nid"}}, "mail_type is 'END\\nid'; allowed: text in one"),
        (
            {**BARE, "launcher": {"kind": "torchrun", "nsys_extra_args": ["-o", "x;id"]}},
            "nsys_extra_args.1 is 'x;id'; ",
        ),
        (
            {**BARE, "launcher": {"kind": "fault_tolerance", "log_level": "a|b"}},
            "launcher.log_level is 'a|b'; nemo-run",
        ),
        (
            {**BARE, "packager": {"kind": "git_archive", "ref": "HEAD;id"}},
            "executor.packager.ref is 'HEAD;id'; nemo-run",
        ),
        ({**BARE, "packager": {"kind": "git_archive", "include_pattern": "x;id"}}, "allowed: arguments of find"),
        (
            {**DOCKER, "packager": {"kind": "git_archive", "subpath": "$(id)"}},
            "executor.packager.subpath is '$(id)'; n",
        ),
        (
            {"kind": "kubeflow", "image": "i", "workdir_pvc": "p", "workdir_pvc_path": "/a;id"},
            "workdir_pvc_path is '/a;",
        ),
        ({**BARE, "container_env": ["A;id"]}, "executor.container_env.0 is 'A;id'; nemo-run writes it unquoted"),
        ({**BARE, "container_env": ["$(id)"]}, "executor.container_env.0 is '$(id)'; nemo-run"),
        ({**BARE, "srun_args": ["-v", "--mpi=pmix;id"]}, "executor.srun_args.1 is '--mpi=pmix;id'; nemo-run"),
        ({**BARE, "srun_args": ["$(id)"]}, "characters in quotes, and $NAME"),
        ({**BARE, "container_image": "it's"}, "allowed: one word"),
        ({**BARE, "container_mounts": ["/a b:/c"]}, "executor.container_mounts.0 is '/a b:/c'; nemo-run writes it"),
        ({**BARE, "container_mounts": ["/$(id):/c"]}, "$NAME or ${NAME}, which the node expands"),
        (NO_VOLUME, "of the cluster file (it has none)"),
        (
            {**NO_VOLUME, "pvcs": [{"claimName": "a"}]},
            "of the cluster file (it has none)",
        ),
        ({**NO_VOLUME, "pvcs": [{"path": "/data"}]}, "of the cluster file (/data)"),
    ],
)
def test_a_mistake_gets_one_message(executor: Any, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ClusterConfig.from_mapping({"executor": executor, "workspace": "/shared"})

    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "executor",
    [
        {
            **BARE,
            "account": "nlp_research",
            "container_image": "nvcr.io#nvidia/nemo:25.07",
            "comment": "it's; a (test)",
        },
        {**BARE, "launcher": {"kind": "none", "nsys_filename": "p_%q{SLURM_PROCID}_$SLURM_JOB_ID"}},
        {**BARE, "packager": {"kind": "pattern", "include_pattern": "/a/b -name '*.py'", "relative_path": "/a"}},
        {**BARE, "packager": {"kind": "pattern", "include_pattern": "/a/**/b*", "relative_path": "/a"}},
        {
            **BARE,
            "account": "${env:SLURM_ACCOUNT}",
            "additional_parameters": {"mail_type": "END", "nice": 5, "spread_job": True},
        },
    ],
)
def test_values_that_a_shell_leaves_alone_are_allowed(executor: Any) -> None:
    assert ClusterConfig.from_mapping({"executor": executor, "workspace": "/shared"}).executor.kind == "slurm"


@pytest.mark.parametrize(("name", "value"), [("python", "python -u;id"), ("train_script", "/a/train.py --x $(id)")])
def test_options_of_a_program_are_words(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} is .*options without spaces, .* on the nodes"):
        ClusterConfig.from_mapping({**SLURM, name: value})


def test_a_programs_path_stays_in_the_quotes_around_it() -> None:
    with pytest.raises(ConfigError, match=r"^train_script is '/a/b\"c'; nemo-run writes it between quotes"):
        ClusterConfig.from_mapping({**SLURM, "train_script": '/a/b"c'})

    profiled = {**BARE, "launcher": {"kind": "none", "nsys_profile": True, "nsys_gpu_metrics": True}}
    for value in ("/a/b c", "/a/b;touch x"):
        plain = ClusterConfig.from_mapping({**SLURM, "executor": BARE, "train_script": value})
        assert plain.train_script == value
        with pytest.raises(ConfigError, match=rf"^train_script is '{value}'; with launcher.nsys_gpu_metrics, nemo-run"):
            ClusterConfig.from_mapping({**SLURM, "executor": profiled, "train_script": value})


@pytest.mark.parametrize("kind", sorted(set(FACTS) - {"local", "torchrun"}))
def test_a_relative_workspace_is_for_this_machine_only(kind: str) -> None:
    with pytest.raises(ConfigError, match=rf"workspace is 'runs'; with a {kind} executor .*path on the nodes"):
        ClusterConfig.from_mapping({"executor": EXECUTORS[kind], "workspace": "runs"})
