"""What cannot work together in one executor, and nemo-run ignores or notices late."""

from __future__ import annotations

from bridgepack.config.cluster.base import Task
from bridgepack.config.cluster.executors import FACTS, Executor
from bridgepack.config.cluster.general import NemoRunExecutor
from bridgepack.config.cluster.launchers import PROCESS_LAUNCHERS
from bridgepack.config.cluster.machine import LocalFields
from bridgepack.config.cluster.slurm import SlurmExecutor
from bridgepack.errors import ConfigError


def check_executor(executor: Executor, task: Task, place: str) -> None:
    """Refuse an executor that no launch could use as it is.

    Args:
        executor: of one task.
        task: build, check or train.
        place: where it stands in the cluster file.

    Raises:
        ConfigError: what is wrong, and what to do.
    """
    _check_choice(executor, "launcher", executor.launcher.kind, executor.facts.launchers, place)
    if not isinstance(executor, NemoRunExecutor) or "packager" in executor.model_fields_set:  # else the class's own
        _check_choice(executor, "packager", executor.packager.kind, executor.facts.packagers, place)
    if executor.packager.symlink_from_remote_dir is not None and not isinstance(executor, SlurmExecutor):
        raise ConfigError(
            f"{place}.packager.symlink_from_remote_dir is {executor.packager.symlink_from_remote_dir!r}; only slurm "
            f"has it, {executor.kind} would ignore it. Remove it."
        )
    if (
        isinstance(executor, LocalFields)
        and (executor.nodes or 1) > 1
        and executor.launcher.kind not in PROCESS_LAUNCHERS
    ):
        raise ConfigError(
            f"{place}.nodes is {executor.nodes}; without torchrun only one process is started. Set {place}.kind to "
            f"torchrun, or remove it."
        )
    if isinstance(executor, SlurmExecutor):
        _check_slurm(executor, task, place)


def _check_choice(executor: Executor, field: str, kind: str, allowed: tuple[str, ...], place: str) -> None:
    if kind in allowed:
        return
    others = [name for name, facts in FACTS.items() if kind in getattr(facts, f"{field}s")]
    raise ConfigError(
        f"{place}.{field}.kind is {kind}; nemo-run has it for {', '.join(others)}, not for {executor.kind}. "
        f"Allowed here: {', '.join(allowed)}. Use one of these."
    )


def _check_slurm(executor: SlurmExecutor, task: Task, place: str) -> None:
    for name in ("heterogeneous", "het_group_indices"):
        if getattr(executor, name):
            raise ConfigError(
                f"{place}.{name} is {getattr(executor, name)}; nemo-run makes a heterogeneous job of a group of "
                f"tasks, and every task of a launch is a job of its own. Remove it."
            )
    if task != "train":
        return
    if executor.launcher.kind == "slurm_ray":
        raise ConfigError(
            f"{place}.launcher.kind is slurm_ray; it runs the command on one node alone, and training needs one "
            f"process for each GPU. Set it for build: tasks.build.executor.launcher."
        )
    if executor.array is not None and not _is_one_at_a_time(executor.array):
        raise ConfigError(
            f"{place}.array is {executor.array!r}; its jobs would train at the same time and write the same "
            f"checkpoints. Allowed: one at a time, each resumes from the last checkpoint. Write "
            f"{executor.array.partition('%')[0]}%1."
        )


def _is_one_at_a_time(array: str) -> bool:
    return array.isdigit() or array.endswith("%1")
