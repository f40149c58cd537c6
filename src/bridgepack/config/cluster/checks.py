"""What cannot work together in one executor, and nemo-run ignores or notices late."""

from collections.abc import Iterator

from bridgepack.config.cluster.base import Task
from bridgepack.config.cluster.executors import FACTS, Executor, LocalFields
from bridgepack.config.cluster.general import NemoRunExecutor
from bridgepack.config.cluster.launchers import PROCESS_LAUNCHERS
from bridgepack.config.cluster.slurm import SlurmExecutor


def executor_faults(executor: Executor, task: Task) -> Iterator[str]:
    """Yield why no launch could use the executor of a task as it is; each begins with the field."""
    yield from _choice_faults(executor, "launcher", executor.launcher.kind, executor.facts.launchers)
    if not isinstance(executor, NemoRunExecutor) or "packager" in executor.model_fields_set:  # else the class's own
        yield from _choice_faults(executor, "packager", executor.packager.kind, executor.facts.packagers)
    if isinstance(executor, SlurmExecutor):
        yield from _slurm_faults(executor, task)
    elif executor.packager.symlink_from_remote_dir is not None:
        yield (
            f"packager.symlink_from_remote_dir is {executor.packager.symlink_from_remote_dir!r}; only slurm "
            f"has it, {executor.kind} would ignore it. Remove it."
        )
    is_launched = executor.launcher.kind in PROCESS_LAUNCHERS
    if isinstance(executor, LocalFields) and (executor.nodes or 1) > 1 and not is_launched:
        yield (
            f"nodes is {executor.nodes}; without torchrun only one process is started. Set kind to torchrun, or "
            "remove it."
        )


def _choice_faults(executor: Executor, field: str, kind: str, allowed: tuple[str, ...]) -> Iterator[str]:
    if kind not in allowed:
        others = [name for name, facts in FACTS.items() if kind in getattr(facts, f"{field}s")]
        yield (
            f"{field}.kind is {kind}; nemo-run has it for {', '.join(others)}, not for {executor.kind}. "
            f"Allowed here: {', '.join(allowed)}. Use one of these."
        )


def _slurm_faults(executor: SlurmExecutor, task: Task) -> Iterator[str]:
    for name in ("heterogeneous", "het_group_indices"):
        if getattr(executor, name):
            yield (
                f"{name} is {getattr(executor, name)}; nemo-run makes a heterogeneous job of a group of tasks, and "
                "every task of a launch is a job of its own. Remove it."
            )
    if task == "train" and executor.launcher.kind == "slurm_ray":
        yield (
            "launcher.kind is slurm_ray; it runs the command on one node alone, and training needs one process for "
            "each GPU. Set it for build: tasks.build.executor.launcher."
        )
    if task == "train" and executor.array is not None and not executor.array.isdigit():
        indices, _, at_once = executor.array.partition("%")
        if at_once != "1":
            yield (
                f"array is {executor.array!r}; its jobs would train at the same time and write the same checkpoints. "
                f"Allowed: one at a time, each resumes from the last checkpoint. Write {indices}%1."
            )
