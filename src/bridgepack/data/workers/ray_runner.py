"""Runs tasks on Ray, which places them, and begins them again when a worker or a node dies."""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from bridgepack.data.tasks import Beat, TaskFailure
from bridgepack.data.workers.ray_tasks import WorkerSetup, run_task
from bridgepack.errors import ConfigError, DataError

#: Times that Ray begins a task again whose worker or node died.
_MAX_RETRIES = 3
#: Tasks on their way, and results that wait for their turn, per task that can run at a time.
_MAX_IN_FLIGHT, _MAX_UNREAD = 2, 4
_LOOK_S = 1.0
#: A cluster may lose its last node and get another one; for so long a build waits.
_NO_CPU_S = 300.0


@dataclass(kw_only=True, eq=False)
class _Ticket:
    """One task on its way; Ray has it until its result is read."""

    task: Any
    reference: Any


@dataclass(kw_only=True, eq=False)
class RayRunner:
    """Runs tasks on the cluster that this process is connected to.

    Attributes:
        ray: the module.
        setup: what processes need before they run tasks.
        num_workers: most tasks at a time; None for as many as the cluster has CPUs.
        slots_per_node: tasks that a machine runs at a time, at most.
    """

    ray: Any
    setup: WorkerSetup
    num_workers: int | None
    slots_per_node: int
    _in_flight: set[Any] = field(default_factory=set)
    _num_slots: int = 0
    _looked_s: float = float("-inf")
    _last_cpu_s: float = 0.0

    def __post_init__(self) -> None:
        """Name what Ray is to run."""
        # A task takes one CPU. Ray begins it again on another worker or node, as often as allowed.
        self._function = self.ray.remote(run_task).options(max_retries=_MAX_RETRIES, num_cpus=1)
        self._setup = pickle.dumps(self.setup)
        self._last_cpu_s = time.monotonic()

    def run[T, R](self, function: Callable[[T, Beat], R], tasks: Iterable[T]) -> Iterator[R | TaskFailure]:
        """Yield what becomes of each task, in order, as `Runner` says.

        Raises:
            BridgepackError, OSError: what a task raised.
            DataError: when the cluster has no CPU any more.
        """
        tickets: deque[_Ticket] = deque()
        waiting_for = iter(tasks)
        try:
            while True:
                slots = self._slots()
                while len(self._in_flight) < self._most_in_flight(slots) and len(tickets) < _MAX_UNREAD * slots:
                    new = [self._submit(function, task) for task in islice(waiting_for, 1)]
                    if not new:
                        break
                    tickets += new
                if not tickets:
                    return
                if tickets[0].reference not in self._in_flight:
                    yield self._outcome(tickets.popleft())
                else:
                    self._look()
        finally:
            self._give_up([ticket.reference for ticket in tickets])

    def run_alone[T, R](self, function: Callable[[T, Beat], R], task: T) -> R | TaskFailure:
        """Return what becomes of a task while no other one runs."""
        while self._in_flight:
            self._look()
        ticket = self._submit(function, task)
        try:
            while self._in_flight:
                self._look()
            result: R | TaskFailure = self._outcome(ticket)
            return result
        finally:
            self._give_up([ticket.reference])

    def _submit(self, function: Callable[[Any, Beat], Any], task: Any) -> _Ticket:
        call = pickle.dumps((function, task), protocol=pickle.HIGHEST_PROTOCOL)
        reference = self._function.remote(self._setup, call, self.slots_per_node)
        self._in_flight.add(reference)
        return _Ticket(task=task, reference=reference)

    def _look(self) -> None:
        """Wait a moment for tasks that end."""
        done, _ = self.ray.wait(list(self._in_flight), timeout=_LOOK_S, fetch_local=False)
        self._in_flight.difference_update(done)
        if done:
            self._last_cpu_s = time.monotonic()
        self._slots()

    def _slots(self) -> int:
        """Return how many tasks can run at a time now; nodes come and go.

        Raises:
            DataError: when there has been no CPU for minutes.
        """
        now_s = time.monotonic()
        if now_s - self._looked_s > _LOOK_S:
            self._looked_s = now_s
            self._num_slots = int(self.ray.cluster_resources().get("CPU", 0))
            if self._num_slots:
                self._last_cpu_s = now_s
            elif now_s - self._last_cpu_s > _NO_CPU_S:
                raise DataError(
                    f"the Ray cluster has had no node with a CPU for {_NO_CPU_S:.0f} s. What is finished is kept; add "
                    "nodes and run the same command again."
                )
        return max(1, min(self._num_slots, self.num_workers or self._num_slots))

    def _most_in_flight(self, slots: int) -> int:
        return slots if self.num_workers is not None else _MAX_IN_FLIGHT * slots

    def _outcome(self, ticket: _Ticket) -> Any:
        """Return a result or a failure, or raise what the task raised.

        Raises:
            BridgepackError, OSError: what the task raised.
            ConfigError: when workers cannot run bridgepack.
        """
        exceptions = self.ray.exceptions
        try:
            content: bytes = self.ray.get(ticket.reference)
        except exceptions.RayTaskError as error:
            raise cannot_run(error) from None
        except exceptions.RayError as error:
            return TaskFailure(
                task=ticket.task,
                kind="died",
                detail=f"Ray, after {_MAX_RETRIES + 1} tries: {first_sentence(error)}",
                is_memory=isinstance(error, exceptions.OutOfMemoryError),
            )
        kind, value = pickle.loads(content)  # noqa: S301 (Ray brought it from a worker of this build)
        if kind == "error":
            raise value
        return replace(value, task=ticket.task) if isinstance(value, TaskFailure) else value

    def _give_up(self, references: list[Any]) -> None:
        """End what is still running of tasks whose results nobody will read."""
        for reference in references:
            if reference in self._in_flight:
                self._in_flight.discard(reference)
                # Ray's workers run one task; only ending them ends it.
                self.ray.cancel(reference, force=True)


def cannot_run(error: BaseException) -> ConfigError:
    """Return the error for a worker that could not even begin, such as one without bridgepack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return ConfigError(
        f"a Ray worker cannot run bridgepack: {lines[-1][:300] if lines else type(error).__name__}. Install the same "
        "bridgepack, with the same libraries, on every node."
    )


def first_sentence(error: BaseException) -> str:
    """Return how an error begins: Ray's have pages."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return line.partition(". ")[0][:200]
