"""Runs tasks on Ray, which places them, and begins them again when a worker or a node dies."""

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
#: Times that Ray begins a task again whose worker or node died.
_MAX_RETRIES = 3
#: Tasks on their way, and results that wait for their turn, per task that can run at a time.
_MAX_IN_FLIGHT, _MAX_UNREAD = 2, 4


@dataclass(kw_only=True, eq=False)
class RayRunner:
    """Runs tasks on the cluster that this process is connected to."""

    ray: Any  #: the module
    setup: WorkerSetup  #: what processes need before they run tasks
    num_workers: int | None  #: most tasks at a time; None for as many as the cluster has CPUs
    slots_per_node: int  #: tasks that a machine runs at a time, at most
    here: Runner  #: runs what ends its worker on Ray every time, on this machine
    _nodes: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def run[T, R](self, function: Callable[[T, Beat], R], tasks: Iterable[T]) -> Iterator[R | TaskFailure]:
        """Yield what becomes of each task, in order, as `Runner` says.

        Raises:
            BridgepackError, OSError: what a task raised.
            ConfigError: a worker could not even begin, such as one without bridgepack.
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
                self.ray.cancel(reference, force=True)  # Ray's workers run one task; only ending them ends it

    def run_alone[T, R](self, function: Callable[[T, Beat], R], task: T) -> R | TaskFailure:
        """Return what becomes of a task in a process of this machine, which may die."""
        return self.here.run_alone(function, task)

    def _most(self) -> tuple[int, int]:
        """Return how many tasks may be under way, and how many may be under way or not read; nodes come and go."""
        nodes = {node["NodeID"]: node for node in alive_nodes(self.ray)}
        for lost in self._nodes.keys() - nodes.keys():
            _LOG.warning(
                "the Ray node %s is gone; its tasks begin again elsewhere, and what it had finished is kept",
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
            outcome = pickle.loads(future.result())  # noqa: S301 (Ray brought it from a worker of this build)
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
    """Return the cluster's nodes that are alive, as Ray describes them."""
    return [node for node in ray.nodes() if node["Alive"]]


def num_cpus(node: Mapping[str, Any]) -> int:
    """Return how many tasks a node runs at a time."""
    return int(node["Resources"].get("CPU", 0))


def first_sentence(error: BaseException) -> str:
    """Return how an error begins: Ray's have pages."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].partition(". ")[0][:200]
