"""The tasks of a launch as nemo-run's own objects: a Script and an Executor each, in order."""

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

#: Environment variable by which the processes of a run on this machine are found.
RUN_VARIABLE = "BRIDGEPACK_RUN"
_ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchTask:
    """One task, ready for `run.Experiment.add`."""

    name: Task  #: build, check or train
    script: run.Script  #: what runs
    executor: run.Executor  #: where it runs
    dependencies: tuple[str, ...] = ()  #: names of the tasks that must have succeeded before
    plugins: tuple[run.Plugin, ...] = ()  #: run.Plugin objects that act on the task when it is added; none by default


def make_tasks(plan: LaunchPlan, *, for_display: bool = False) -> tuple[LaunchTask, ...]:
    """Return the tasks of a plan in order, each waiting for the one before; nothing is written or submitted.

    Add them to any experiment: `experiment.add(task.script, executor=task.executor, name=task.name,
    dependencies=list(task.dependencies))`.

    Raises:
        ConfigError: an executor cannot be made of the cluster's settings, or the recipe is too long for an argument.
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
        # With another entry point nemo-run makes torchrun execute the script itself, by its first line.
        entry_point = DEFAULT_PYTHON if cluster.processes(task).has_process_launcher else cluster.python
        return run.Script(path=cluster.train_script, entrypoint=entry_point, args=arguments, env=variables)
    return run.Script(
        path=f"bridgepack.running.{task}", m=True, entrypoint=cluster.python, args=arguments, env=variables
    )


def _local_variables(plan: LaunchPlan, task: Task) -> dict[str, str]:
    """Return what processes of this machine need: a mark of the run, and the folder of a chosen Python in PATH.

    One that trains alone is told so: in an allocation of Slurm it would inherit the number of its tasks, and wait for
    the others.
    """
    if plan.cluster.executor_for(task).kind not in LOCAL_KINDS:
        return {}
    python = plan.cluster.python
    path = {"PATH": str(Path(python).parent)} if os.sep in python else {}
    is_alone = task == "train" and not plan.cluster.processes(task).has_process_launcher
    return {RUN_VARIABLE: plan.run_name, **path, **(_ALONE if is_alone else {})}


def _chain_on_slurm(tasks: tuple[LaunchTask, ...]) -> None:
    """Let Slurm start a task only after the success of the one before, and cancel it once that can no longer be.

    nemo-run passes `--dependency=DEPENDENCY_TYPE:JOB` to sbatch for the tasks that wait. What the cluster file says of
    dependencies is about the first task.
    """
    if not all(isinstance(task.executor, run.SlurmExecutor) for task in tasks):
        return
    for executor in (task.executor for task in tasks[1:]):
        executor.dependency_type = "afterok"
        executor.dependencies = []
        executor.additional_parameters = {"kill_on_invalid_dep": "yes", **(executor.additional_parameters or {})}


def is_on_this_machine(cluster: ClusterConfig, task: Task) -> bool:
    """Say whether a task's processes or containers are on this machine, and end with the launch."""
    return cluster.executor_for(task).kind in {*LOCAL_KINDS, "docker"}
