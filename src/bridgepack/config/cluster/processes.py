"""How many nodes and processes a task gets: as the file says, else from the GPUs that the recipe is made for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from bridgepack.config.cluster.base import Task
from bridgepack.config.cluster.executors import LOCAL_KINDS, Executor
from bridgepack.config.cluster.general import ONE_FOR_EACH_GPU, SKYPILOT
from bridgepack.config.cluster.launchers import PROCESS_LAUNCHERS
from bridgepack.config.cluster.slurm import SlurmExecutor
from bridgepack.errors import ConfigError

#: The most GPUs that are taken for those of one node without being told.
MOST_GPUS_OF_A_NODE = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Processes:
    """Nodes and processes of a task.

    Attributes:
        num_nodes: nodes, or None where neither file nor recipe says.
        num_per_node: processes on each, or None.
        gpus_per_node: GPUs to ask for on each node; None to ask for none, -1 for all.
        has_process_launcher: whether torchrun or ft_launcher starts the processes of a node.
    """

    num_nodes: int | None
    num_per_node: int | None
    gpus_per_node: int | None
    has_process_launcher: bool

    @property
    def world_size(self) -> int | None:
        """Processes in all, or None where they are not known."""
        if self.num_nodes is None or self.num_per_node is None:
            return None
        return self.num_nodes * self.num_per_node


@dataclass(frozen=True, kw_only=True, slots=True)
class _Written:
    """What the file says: nodes, processes of a node, GPUs of a node; each or None."""

    nodes: int | None
    processes: int | None
    gpus: int | None


def processes_of(
    executor: Executor, task: Task, num_gpus: int | None, *, own_fields: Collection[str], place: str
) -> Processes:
    """Return the processes of a task on its executor.

    Args:
        executor: the task's.
        task: build, check or train.
        num_gpus: GPUs that the recipe is made for, or None.
        own_fields: executor fields that were written for this task alone.
        place: where the executor stands in the file, for messages.

    Raises:
        ConfigError: the GPUs do not fill whole nodes, or `build` or `check` would be more than one process.
    """
    if task != "train":
        return _one_process(executor, task, own_fields, place)
    nodes: int | None
    per_node: int | None
    is_launched = executor.launcher.kind in PROCESS_LAUNCHERS
    said = _as_written(executor, is_launched)
    if not is_launched and not isinstance(executor, SlurmExecutor):
        nodes, per_node = said.nodes or 1, 1  # nothing there starts more than one process on a node
    else:
        nodes, per_node = _filled(said, num_gpus, executor, place)
    return Processes(
        num_nodes=nodes,
        num_per_node=per_node,
        gpus_per_node=_gpus_to_ask_for(executor, said, per_node),
        has_process_launcher=is_launched,
    )


def _one_process(executor: Executor, task: Task, own_fields: Collection[str], place: str) -> Processes:
    """Return one process, with the GPUs that were asked for this task alone.

    Raises:
        ConfigError: more processes were asked for this task.
    """
    launcher = executor.launcher.kind
    facts = executor.facts
    limited = {facts.processes, "torchrun_nproc_per_node"}
    if launcher != "slurm_ray":
        limited.add(facts.nodes)
    for name in sorted(limited & set(own_fields)):
        value = executor.value(name)
        if value is not None and value != 1:
            raise ConfigError(
                f"{place}.{name} is {value}; allowed: 1. {task} is one process; more would write the same files. "
                f"Remove it."
            )
    nodes = executor.value(facts.nodes) if facts.nodes in own_fields else None
    gpus = executor.value(facts.gpus) if facts.gpus in own_fields else None
    return Processes(
        num_nodes=nodes or 1,
        num_per_node=1,
        gpus_per_node=gpus or None,
        has_process_launcher=launcher in PROCESS_LAUNCHERS and "launcher" in own_fields,
    )


def _as_written(executor: Executor, is_launched: bool) -> _Written:
    facts = executor.facts
    nodes = executor.value(facts.nodes)
    if executor.kind in LOCAL_KINDS or not facts.nodes:
        nodes = nodes or 1
    processes = executor.value(facts.processes)
    if isinstance(executor, SlurmExecutor) and is_launched:
        processes = executor.torchrun_nproc_per_node or processes
    gpus = executor.value(facts.gpus)
    gpus = gpus if gpus is not None and gpus > 0 else None
    if isinstance(executor, SlurmExecutor):
        gpus = gpus or executor.gpus_in_gres()
    if facts.class_name in ONE_FOR_EACH_GPU and gpus:
        processes = gpus  # the order in which nemo-run looks
    return _Written(nodes=nodes, processes=processes, gpus=gpus)


def _filled(said: _Written, num_gpus: int | None, executor: Executor, place: str) -> tuple[int | None, int | None]:
    """Return nodes and processes of a node, with what the file leaves open worked out from the recipe's GPUs."""
    per_node = said.processes or said.gpus
    if num_gpus is None or (said.nodes is not None and per_node is not None):
        return said.nodes, per_node
    if said.nodes is not None:
        return said.nodes, _whole(num_gpus, said.nodes, f"{place}.{executor.facts.nodes} is {said.nodes}", executor)
    if per_node is None:
        return 1, _of_one_node(num_gpus, executor, place)
    if num_gpus <= per_node:
        return 1, said.processes or num_gpus
    return _whole(num_gpus, per_node, f"{place} has {per_node} GPUs or processes on a node", executor), per_node


def _whole(num_gpus: int, divisor: int, what: str, executor: Executor) -> int:
    if num_gpus % divisor:
        fields = f"{executor.facts.nodes} and {executor.facts.processes}"
        raise ConfigError(
            f"{what}; the recipe is made for {num_gpus} GPUs, which do not fill equal nodes of that. Set {fields}, or "
            f"change the recipe's topology."
        )
    return num_gpus // divisor


def _of_one_node(num_gpus: int, executor: Executor, place: str) -> int:
    if num_gpus > MOST_GPUS_OF_A_NODE and executor.kind not in LOCAL_KINDS:
        raise ConfigError(
            f"{place}.{executor.facts.gpus} is not set; the recipe is made for {num_gpus} GPUs, which are more than "
            f"one node has in general. Set it to the GPUs of a node, e.g. {executor.facts.gpus}: 8."
        )
    return num_gpus


def _gpus_to_ask_for(executor: Executor, said: _Written, per_node: int | None) -> int | None:
    """Return the GPUs of a node to ask for; processes without GPUs in the file are a cluster that counts none."""
    if not executor.facts.gpus:
        return None
    written: int | None = executor.value(executor.facts.gpus)
    if written is not None:
        return written or None
    if isinstance(executor, SlurmExecutor) and (executor.gpus_per_task or executor.gpus_in_gres()):
        return None
    if executor.facts.class_name in SKYPILOT:
        return per_node if executor.value("gpus") is not None else None
    return None if said.processes else per_node
