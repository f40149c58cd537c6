"""Mistakes in cluster files get one message each: field, value, what is allowed, what to do."""

from typing import Any

import pytest

from bridgepack.config.cluster import ClusterConfig
from bridgepack.config.cluster.executors import FACTS
from bridgepack.errors import ConfigError
from tests.support.full_clusters import EXECUTORS, least_executor

SLURM = {"kind": "slurm", "account": "research"}


def _message(executor: Any, **fields: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        ClusterConfig.from_mapping({"executor": executor, "workspace": "/shared", **fields})
    return str(caught.value)


def test_a_field_of_another_executor_says_which_has_it_and_the_nearest() -> None:
    message = _message({"kind": "docker", "container_image": "i", "account": "research"})

    assert message.startswith("executor.account is not a field of docker; slurm has it. ")
    assert "docker has: additional_kwargs, container_image, " in message


def test_the_nearest_field_of_the_executor_is_named() -> None:
    message = _message({"kind": "docker", "container_image": "i", "container_mounts": ["/a:/a"]})

    assert message.startswith(
        "executor.container_mounts is not a field of docker; slurm has it. Did you mean container_image? "
    )
    assert _message({"kind": "docker", "container_image": "i", "nodes": 2}).startswith(
        "executor.nodes is not a field of docker; local, torchrun and slurm have it. "
    )


@pytest.mark.parametrize(
    ("executor", "expected"),
    [
        ("slurm", "executor is 'slurm'; allowed: a section with named fields. Write executor: {kind: slurm}."),
        ({"kind": "slrum"}, "Did you mean slurm?"),
        ({"kind": "slurm"}, "executor.account is missing (Account that the jobs are"),
        ({**SLURM, "time": "4h"}, "executor.time is '4h'; allowed: MINUTES, MINUTES:SECONDS, HOURS:MINUTES:SECONDS,"),
        ({**SLURM, "container_mounts": ["/a"]}, "executor.container_mounts.0 is '/a'; allowed: SOURCE:TARGET or"),
        ({**SLURM, "container_mounts": ["a:/b"]}, "SOURCE absolute"),
        ({**SLURM, "dependencies": ["job"]}, "executor.dependencies.0 is 'job'; allowed: the id of a Slurm job"),
        ({**SLURM, "array": "a"}, "executor.array is 'a'; allowed: indices and ranges"),
        ({**SLURM, "array": "0-3"}, "executor.array is '0-3'; its jobs would train at the same time"),
        ({**SLURM, "array": "0-3%2"}, "Write 0-3%1."),
        ({**SLURM, "launcher": "torchrun"}, "Write executor.launcher: {kind: torchrun}."),
        ({**SLURM, "launcher": {"kind": "slurm_template"}}, "executor.launcher.template_path and template_inline: nei"),
        ({**SLURM, "launcher": {"kind": "slurm_ray"}}, "Set it for build: tasks.build.executor.launcher."),
        ({**SLURM, "heterogeneous": True}, "a launch submits every task as its own job. Remove it."),
        ({**SLURM, "tunnel": {"kind": "ssh", "host": "h", "user": "u"}}, "executor.tunnel.job_dir is missing"),
        (
            {**SLURM, "tunnel": {"kind": "ssh", "host": "h", "user": "u", "job_dir": "jobs"}},
            "allowed: an absolute path",
        ),
        (
            {**SLURM, "packager": {"kind": "hybrid", "sub_packagers": {"a": {"kind": "patern"}}}},
            "executor.packager.sub_packagers.a.kind is 'patern'; allowed: git_archive, pattern, hybrid.",
        ),
        (
            {**SLURM, "packager": {"kind": "pattern", "include_pattern": ["a", "b"], "relative_path": "c"}},
            "executor.packager.include_pattern has 2 and relative_path has 1;",
        ),
        ({"kind": "local", "nodes": 2}, "executor.nodes is 2; without torchrun only one process is started."),
        ({"kind": "torchrun", "launcher": {"kind": "none"}}, "Allowed here: torchrun, fault_tolerance."),
        ({"kind": "local", "launcher": {"kind": "slurm_ray"}}, "nemo-run supports it for slurm, not for local."),
        ({"kind": "skypilot", "packager": {"kind": "none"}}, "not for skypilot. Allowed here: git_archive. Use one"),
        ({"kind": "nemo_run"}, "executor.class is missing; allowed: a name in nemo_run, e.g. SkypilotExecutor, "),
        ({"kind": "nemo_run", "class": "a b"}, "executor.class is 'a b'; allowed: text matching"),
        ({"kind": "nemo_run", "class": "SlurmExecutor"}, "it has a kind of its own. Write kind: slurm."),
        ({"kind": "lepton", "class": "X"}, "kind lepton is short for LeptonExecutor. Write kind: nemo_run."),
        ({"kind": "skypilot", "num_nodes": "two"}, "executor.num_nodes is 'two'; allowed: a whole number, at least 1."),
        ({"kind": "nemo_run", "class": "X", "nodes": True}, "executor.nodes is True; allowed: a whole number, at lea"),
        ({"kind": "nemo_run", "class": "KubeflowExecutor", "image": "i"}, "executor.workdir_pvc is missing; a launch"),
        (
            {"kind": "nemo_run", "class": "LeptonExecutor", "resource_shape": "s", "node_group": "g"}
            | {"launcher": {"kind": "fault_tolerance"}},
            "Allowed here: none, torchrun.",
        ),
        (
            {"kind": "docker", "container_image": "i", "volumes": ["/a:b"]},
            "volumes.0 is '/a:b'; allowed: SOURCE:TARGET",
        ),
        ({**SLURM, "env_vars": {"A B": "1"}}, "executor.env_vars.A B"),
    ],
)
def test_a_mistake_gets_one_message(executor: Any, expected: str) -> None:
    message = _message(executor)

    assert expected in message
    assert "\n" not in message


def test_a_mistake_in_a_task_names_the_task() -> None:
    message = _message(SLURM, tasks={"build": {"executor": {"partiton": "cpu"}}})

    assert message.startswith("tasks.build.executor.partiton is not a field of slurm; ")


def test_a_volume_must_hold_the_jobs() -> None:
    executor = {**least_executor("dgxcloud", pvc_nemo_run_dir="/runs"), "pvcs": []}

    assert "it is on no volume (there is none)" in _message(executor)
    assert "(there is none)" in _message({**executor, "pvcs": [{"claimName": "a"}]})
    assert "it is on no volume (/data)" in _message({**executor, "pvcs": [{"path": "/data"}]})


@pytest.mark.parametrize("kind", sorted(set(FACTS) - {"local", "torchrun"}))
def test_a_relative_workspace_is_for_this_machine_only(kind: str) -> None:
    with pytest.raises(ConfigError, match=rf"workspace is 'runs'; with a {kind} executor it is a path on the nodes"):
        ClusterConfig.from_mapping({"executor": EXECUTORS[kind], "workspace": "runs"})
