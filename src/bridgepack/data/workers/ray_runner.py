"""Runs tasks on Ray, which places them, and begins them again when a worker or a node dies."""

import logging
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from typing import Any

from bridgepack.data.tasks import Beat, TaskFailure, in_order
from bridgepack.data.workers.ray_tasks import WorkerSetup, run_task, run_task_apart
from bridgepack.errors import ConfigError, DataError

_LOG = logging.getLogger(__name__)
#: Times that Ray begins a task again whose worker or node died.
_MAX_RETRIES = 3
#: Tasks on their way, and results that wait for their turn, per task that can run at a time.
_MAX_IN_FLIGHT, _MAX_UNREAD = 2, 4
_LOOK_S = 1.0
#: A cluster may lose its last node and get another one; for so long a build waits.
_NO_CPU_S = 300.0


@dataclass(kw_only=True, eq=False)
class RayRunner:
    """Runs tasks on the cluster that this process is connected to."""

    ray: Any  #: the module
    setup: WorkerSetup  #: what processes need before they run tasks
    num_workers: int | None  #: most tasks at a time; None for as many as the cluster has CPUs
    slots_per_node: int  #: tasks that a machine runs at a time, at most
    _in_flight: dict[Future[bytes], Any] = field(default_factory=dict)
    _nodes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _looked_s: float = float("-inf")
    _last_cpu_s: float = 0.0

    def __post_init__(self) -> None:
        """Name what Ray is to run."""
        # A task takes one CPU. Ray begins it again on another worker or node, as often as allowed.
        options = {"max_retries": _MAX_RETRIES, "num_cpus": 1}
        self._here, self._apart = (self.ray.remote(item).options(**options) for item in (run_task, run_task_apart))
        self._setup = pickle.dumps(self.setup)
        self._last_cpu_s = time.monotonic()

    def run[T, R](self, function: Callable[[T, Beat], R], tasks: Iterable[T]) -> Iterator[R | TaskFailure]:
        """Yield what becomes of each task, in order, as `Runner` says.

        Raises:
            BridgepackError, OSError: what a task raised.
            DataError: when the cluster has no CPU any more.
        """
        outstanding: set[Future[bytes]] = set()

        def submit(task: T) -> Future[bytes]:
            future = self._submit(self._here, function, task, self.slots_per_node)
            outstanding.add(future)
            return future

        try:
            for task, future in in_order(submit, tasks, self._most):
                yield self._outcome(task, future)
                outstanding.discard(future)
        finally:
            self._give_up(outstanding)

    def run_alone[T, R](self, function: Callable[[T, Beat], R], task: T) -> R | TaskFailure:
        """Return what becomes of a task while no other one runs, in a process that may die."""
        self._wait_for(self._in_flight)
        future = self._submit(self._apart, function, task)
        try:
            self._wait_for([future])
            result: R | TaskFailure = self._outcome(task, future)
            return result
        finally:
            self._give_up([future])

    def _submit(self, remote: Any, function: Callable[[Any, Beat], Any], task: Any, *arguments: Any) -> Future[bytes]:
        call = pickle.dumps((function, task), protocol=pickle.HIGHEST_PROTOCOL)
        reference = remote.remote(self._setup, call, *arguments)
        future: Future[bytes] = reference.future()
        self._in_flight[future] = reference
        future.add_done_callback(self._in_flight.pop)
        return future

    def _wait_for(self, futures: Iterable[Future[bytes]]) -> None:
        """Wait until tasks end, as long as the cluster has a CPU."""
        while wait(list(futures), timeout=_LOOK_S).not_done:
            self._slots()

    def _most(self) -> tuple[int, int]:
        """Return how many tasks may be under way, and how many may be under way or not read."""
        slots = self._slots()
        return slots if self.num_workers is not None else _MAX_IN_FLIGHT * slots, _MAX_UNREAD * slots

    def _slots(self) -> int:
        """Return how many tasks can run at a time now; nodes come and go.

        Raises:
            DataError: when there has been no CPU for minutes.
        """
        now_s = time.monotonic()
        if now_s - self._looked_s > _LOOK_S:
            self._looked_s = now_s
            nodes = {node["NodeID"]: node for node in alive_nodes(self.ray)}
            for lost in self._nodes.keys() - nodes.keys():
                _LOG.warning(
                    "the Ray node %s is gone; its tasks begin again elsewhere, and what it had finished is kept",
                    self._nodes[lost]["NodeManagerHostname"],
                )
            self._nodes = nodes
            if self._num_cpus():
                self._last_cpu_s = now_s
            elif now_s - self._last_cpu_s > _NO_CPU_S:
                raise DataError(
                    f"the Ray cluster has had no node with a CPU for {_NO_CPU_S:.0f} s. What is finished is kept; add "
                    "nodes and run the same command again."
                )
        return max(1, min(self._num_cpus(), self.num_workers or self._num_cpus()))

    def _num_cpus(self) -> int:
        return sum(map(num_cpus, self._nodes.values()))

    def _outcome(self, task: Any, future: Future[bytes]) -> Any:
        """Return a result or a failure.

        Raises:
            BridgepackError, OSError: what the task raised.
            ConfigError: a worker could not even begin, such as one without bridgepack.
        """
        exceptions = self.ray.exceptions
        try:
            kind, value = pickle.loads(future.result())  # noqa: S301 (Ray brought it from a worker of this build)
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
        if kind == "error":
            raise value
        return replace(value, task=task) if isinstance(value, TaskFailure) else value

    def _give_up(self, futures: Iterable[Future[bytes]]) -> None:
        """End what is still running of tasks whose results nobody will read."""
        for future in futures:
            reference = self._in_flight.pop(future, None)
            if reference is not None:
                # Ray's workers run one task; only ending them ends it.
                self.ray.cancel(reference, force=True)


def alive_nodes(ray: Any) -> list[Mapping[str, Any]]:
    """Return the cluster's nodes that are alive, as Ray describes them."""
    return [node for node in ray.nodes() if node["Alive"]]


def num_cpus(node: Mapping[str, Any]) -> int:
    """Return how many tasks a node runs at a time."""
    return int(node["Resources"].get("CPU", 0))


def first_sentence(error: BaseException) -> str:
    """Return how an error begins: Ray's have pages."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].partition(". ")[0][:200]
