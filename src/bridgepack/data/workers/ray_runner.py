"""Runs tasks on Ray, which schedules them and restarts them when a worker or node dies."""

import logging
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from bridgepack.data.tasks import Beat, Runner, TaskFailure, in_order
from bridgepack.data.workers.ray_tasks import WorkerSetup, run_task
from bridgepack.errors import ConfigError

_LOG = logging.getLogger(__name__)
#: Retries by Ray of a task whose worker or node died.
_MAX_RETRIES = 3
#: Tasks in flight, and results waiting for their turn, per task that can run at a time.
_MAX_IN_FLIGHT, _MAX_UNREAD = 2, 4


@dataclass(kw_only=True, eq=False)
class RayRunner:
    """Runs tasks on the cluster that this process is connected to."""

    ray: Any  #: the module
    setup: WorkerSetup  #: setup of a process before its first task
    num_workers: int | None  #: maximum concurrent tasks; None for the cluster's CPUs
    slots_per_node: int  #: maximum concurrent tasks per machine
    here: Runner  #: runs tasks on this machine whose Ray workers always die
    _nodes: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def run[T, R](self, function: Callable[[T, Beat], R], tasks: Iterable[T]) -> Iterator[R | TaskFailure]:
        """Yield the outcome of each task, in order; see `Runner`.

        Raises:
            BridgepackError, OSError: a task raised it.
            ConfigError: a worker cannot start, e.g. without bridgepack.
        """
        remote = self.ray.remote(run_task).options(max_retries=_MAX_RETRIES, num_cpus=1)
        setup, references = pickle.dumps(self.setup), {}

        def submit(task: T) -> Future[bytes]:
            reference = remote.remote(setup, pickle.dumps((function, task)), self.slots_per_node)
            future: Future[bytes] = reference.future()
            references[future] = reference
            return future

        try:
            for task, future in in_order(submit, tasks, self._most):
                del references[future]
                yield self._outcome(task, future)
        finally:
            for reference in references.values():
                self.ray.cancel(reference, force=True)  # Ray's workers run one task; only killing the worker stops it

    def run_alone[T, R](self, function: Callable[[T, Beat], R], task: T) -> R | TaskFailure:
        """Return the outcome of a task in a process on this machine, which may die."""
        return self.here.run_alone(function, task)

    def _most(self) -> tuple[int, int]:
        """Return (maximum tasks in flight, maximum tasks in flight or unread) for the nodes that are now alive."""
        nodes = {node["NodeID"]: node for node in alive_nodes(self.ray)}
        for lost in self._nodes.keys() - nodes.keys():
            _LOG.warning(
                "the Ray node %s is gone; its tasks restart on other nodes, and its finished work is kept",
                self._nodes[lost]["NodeManagerHostname"],
            )
        self._nodes = nodes
        num_slots = max(1, sum(map(num_cpus, nodes.values())))
        if self.num_workers is None:
            return _MAX_IN_FLIGHT * num_slots, _MAX_UNREAD * num_slots
        return min(num_slots, self.num_workers), _MAX_UNREAD * min(num_slots, self.num_workers)

    def _outcome(self, task: Any, future: Future[bytes]) -> Any:
        exceptions = self.ray.exceptions
        try:
            outcome = pickle.loads(future.result())  # noqa: S301 (from a worker of this build, through Ray)
        except exceptions.RayTaskError as error:
            last_line = str(error).strip().splitlines()[-1].strip()
            raise ConfigError(
                f"a Ray worker cannot run bridgepack: {last_line[:300]}. Install the same bridgepack, with the same "
                "libraries, on every node."
            ) from None
        except exceptions.RayError as error:
            return TaskFailure(
                task=task,
                kind="died",
                detail=f"Ray, after {_MAX_RETRIES + 1} tries: {first_sentence(error)}",
                is_memory=isinstance(error, exceptions.OutOfMemoryError),
            )
        if isinstance(outcome, BaseException):
            raise outcome
        return replace(outcome, task=task) if isinstance(outcome, TaskFailure) else outcome


def alive_nodes(ray: Any) -> list[Mapping[str, Any]]:
    """Return Ray's descriptions of the cluster's live nodes."""
    return [node for node in ray.nodes() if node["Alive"]]


def num_cpus(node: Mapping[str, Any]) -> int:
    """Return a node's number of CPUs, each of which runs one task at a time."""
    return int(node["Resources"].get("CPU", 0))


def first_sentence(error: BaseException) -> str:
    """Return the first sentence of an error, because Ray's messages fill pages."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].partition(". ")[0][:200]
