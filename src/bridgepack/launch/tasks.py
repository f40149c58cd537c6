"""The tasks of a launch as nemo-run objects: a Script and an Executor each, in order."""

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import nemo_run as run

from bridgepack.config.cluster.base import Task
from bridgepack.config.cluster.cluster import ClusterConfig
from bridgepack.config.cluster.executors import LOCAL_KINDS
from bridgepack.launch.executors import make_executor
from bridgepack.launch.plan import DEFAULT_PYTHON, LaunchPlan
from bridgepack.running.assignment import OPTION, encode

#: Environment variable that marks a run's processes on this machine.
RUN_VARIABLE = "BRIDGEPACK_RUN"
_ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchTask:
    """One task, ready for `run.Experiment.add`."""

    name: Task  #: build, check or train
    script: run.Script  #: what runs
    executor: run.Executor  #: where it runs
    dependencies: tuple[str, ...] = ()  #: names of the tasks that must succeed first
    plugins: tuple[run.Plugin, ...] = ()  #: plugins that act on the task when it is added


def make_tasks(plan: LaunchPlan, *, for_display: bool = False) -> tuple[LaunchTask, ...]:
    """Return the tasks of a plan in order, each depending on the previous one; writes and submits nothing.

    Add them to any experiment: `experiment.add(task.script, executor=task.executor, name=task.name,
    dependencies=list(task.dependencies))`.

    Raises:
        ConfigError: the cluster's settings give no valid executor, or the recipe is too long for an argument.
    """
    word = encode(plan.assignment())
    before = {task: (first,) for first, task in pairwise(plan.tasks)}
    tasks = tuple(
        LaunchTask(
            name=task,
            script=_script(plan, task, word),
            executor=make_executor(
                plan.cluster, task, num_gpus=plan.world_size, run_name=plan.run_name, for_display=for_display
            ),
            dependencies=before.get(task, ()),
        )
        for task in plan.tasks
    )
    _chain_on_slurm(tasks)
    return tasks


def _script(plan: LaunchPlan, task: Task, word: str) -> run.Script:
    cluster = plan.cluster
    arguments, variables = [OPTION, word], _local_variables(plan, task)
    if task == "train" and cluster.train_script is not None:
        # With another entry point nemo-run lets torchrun execute the script directly, through its shebang line.
        entry_point = DEFAULT_PYTHON if cluster.processes(task).has_process_launcher else cluster.python
        return run.Script(path=cluster.train_script, entrypoint=entry_point, args=arguments, env=variables)
    return run.Script(
        path=f"bridgepack.running.{task}", m=True, entrypoint=cluster.python, args=arguments, env=variables
    )


def _local_variables(plan: LaunchPlan, task: Task) -> dict[str, str]:
    """Return variables for processes on this machine: the run's mark, and PATH with the chosen Python's folder.

    A single training process gets world size 1: within a Slurm allocation it would inherit the number of tasks and wait
    for the others.
    """
    if plan.cluster.executor_for(task).kind not in LOCAL_KINDS:
        return {}
    python = plan.cluster.python
    path = {"PATH": str(Path(python).parent)} if os.sep in python else {}
    is_alone = task == "train" and not plan.cluster.processes(task).has_process_launcher
    return {RUN_VARIABLE: plan.run_name, **path, **(_ALONE if is_alone else {})}


def _chain_on_slurm(tasks: tuple[LaunchTask, ...]) -> None:
    """Make Slurm start a task only after the previous one succeeded, and cancel it if that becomes impossible.

    nemo-run passes `--dependency=DEPENDENCY_TYPE:JOB` to sbatch for waiting tasks. The cluster file's `dependencies`
    apply to the first task.
    """
    if not all(isinstance(task.executor, run.SlurmExecutor) for task in tasks):
        return
    for executor in (task.executor for task in tasks[1:]):
        executor.dependency_type = "afterok"
        executor.dependencies = []
        executor.additional_parameters = {"kill_on_invalid_dep": "yes", **(executor.additional_parameters or {})}


def is_on_this_machine(cluster: ClusterConfig, task: Task) -> bool:
    """Return whether a task's processes or containers run on this machine and end with the launch."""
    return cluster.executor_for(task).kind in {*LOCAL_KINDS, "docker"}
