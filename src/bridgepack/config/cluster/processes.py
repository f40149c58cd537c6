"""Nodes and processes of a task: from the cluster file, else from the recipe's GPUs."""

from collections.abc import Collection
from dataclasses import dataclass

from bridgepack.config.cluster.base import PROCESS_LAUNCHERS, Task
from bridgepack.config.cluster.executors import LOCAL_KINDS, ONE_FOR_EACH_GPU, SKYPILOT, Executor
from bridgepack.config.cluster.slurm import SlurmExecutor
from bridgepack.errors import ConfigError

#: Maximum GPUs assumed to fit one node when the file does not say.
MOST_GPUS_OF_A_NODE = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Processes:
    """Nodes and processes of a task."""

    num_nodes: int | None  #: nodes, or None if neither file nor recipe sets them
    num_per_node: int | None  #: processes per node, or None
    gpus_per_node: int | None  #: GPUs to request per node; None to request none, -1 for all
    has_process_launcher: bool  #: torchrun or ft_launcher starts the processes of a node

    @property
    def world_size(self) -> int | None:
        """Total number of processes, or None if unknown."""
        if self.num_nodes is None or self.num_per_node is None:
            return None
        return self.num_nodes * self.num_per_node


def processes_of(
    executor: Executor, task: Task, num_gpus: int | None, *, own_fields: Collection[str], place: str
) -> Processes:
    """Return the processes of a task on its executor; `own_fields` are the fields set for this task only.

    `num_gpus` is the recipe's number of GPUs; `place`, the executor's dotted path in the file, is for messages.

    Raises:
        ConfigError: the GPUs do not fill whole nodes, or `build` or `check` would be more than one process.
    """
    if task != "train":
        return _one_process(executor, task, own_fields, place)
    is_launched = executor.launcher.kind in PROCESS_LAUNCHERS
    nodes, processes, gpus = _stated_counts(executor, is_launched)
    per_node = processes or gpus
    sizes: tuple[int | None, int | None]
    if not is_launched and not isinstance(executor, SlurmExecutor):
        sizes = nodes or 1, 1  # such executors start one process per node
    elif num_gpus is None or (nodes and per_node):
        sizes = nodes, per_node
    elif nodes is None and per_node is not None and num_gpus <= per_node:
        sizes = 1, processes or num_gpus
    else:
        sizes = _fill(nodes, per_node, num_gpus, executor, place)
    return Processes(
        num_nodes=sizes[0],
        num_per_node=sizes[1],
        gpus_per_node=_gpus_to_ask_for(executor, processes, sizes[1]),
        has_process_launcher=is_launched,
    )


def _one_process(executor: Executor, task: Task, own_fields: Collection[str], place: str) -> Processes:
    launcher, facts = executor.launcher.kind, executor.facts
    count_fields = {facts.processes, "torchrun_nproc_per_node", *([] if launcher == "slurm_ray" else [facts.nodes])}
    for name in sorted(count_fields & set(own_fields)):
        value = executor.value(name)
        if value not in {None, 1}:
            raise ConfigError(
                f"{place}.{name} is {value}; allowed: 1. {task} is one process; several would write the same files. "
                f"Remove it."
            )
    nodes, gpus = (executor.value(name) if name in own_fields else None for name in (facts.nodes, facts.gpus))
    return Processes(
        num_nodes=nodes or 1,
        num_per_node=1,
        gpus_per_node=gpus or None,
        has_process_launcher=launcher in PROCESS_LAUNCHERS and "launcher" in own_fields,
    )


def _stated_counts(executor: Executor, is_launched: bool) -> tuple[int | None, int | None, int | None]:
    facts = executor.facts
    nodes, processes, gpus = (executor.value(name) for name in (facts.nodes, facts.processes, facts.gpus))
    if executor.kind in LOCAL_KINDS or not facts.nodes:
        nodes = nodes or 1
    gpus = gpus if gpus is not None and gpus > 0 else None
    if isinstance(executor, SlurmExecutor):
        gpus = gpus or executor.gpus_in_gres()
        processes = (executor.torchrun_nproc_per_node if is_launched else None) or processes
    if facts.class_name in ONE_FOR_EACH_GPU and gpus:
        processes = gpus  # the order in which nemo-run looks
    return nodes, processes, gpus


def _fill(nodes: int | None, per_node: int | None, num_gpus: int, executor: Executor, place: str) -> tuple[int, int]:
    """Return (nodes, processes per node), derived from the recipe's GPUs where the file does not set them."""
    facts = executor.facts
    if nodes is None and per_node is None and (num_gpus <= MOST_GPUS_OF_A_NODE or executor.kind in LOCAL_KINDS):
        return 1, num_gpus
    if nodes is None and per_node is None:
        raise ConfigError(
            f"{place}.{facts.gpus} is not set; the recipe needs {num_gpus} GPUs, more than one node "
            f"usually has. Set it to the GPUs per node, e.g. {facts.gpus}: 8."
        )
    divisor = nodes or per_node or 1
    if num_gpus % divisor:
        problem = f"{place}.{facts.nodes} is {nodes}" if nodes else f"{place} has {divisor} GPUs or processes per node"
        raise ConfigError(
            f"{problem}; the recipe needs {num_gpus} GPUs, which do not fill equal nodes. Set "
            f"{facts.nodes} and {facts.processes}, or change the recipe's topology."
        )
    return (divisor, num_gpus // divisor) if nodes else (num_gpus // divisor, divisor)


def _gpus_to_ask_for(executor: Executor, processes: int | None, per_node: int | None) -> int | None:
    """Return the GPUs to request per node; None if the file sets processes but no GPUs: its cluster counts none."""
    if not executor.facts.gpus:
        return None
    gpus: int | None = executor.value(executor.facts.gpus)
    if gpus is not None:
        return gpus or None
    if isinstance(executor, SlurmExecutor) and (executor.gpus_per_task or executor.gpus_in_gres()):
        return None
    if executor.facts.class_name in SKYPILOT:
        return per_node if executor.value("gpus") is not None else None
    return None if processes else per_node
