"""A pool of worker processes: tasks go to any free worker, results come in order, dead workers are replaced.

A thread talks to each worker, so that Ctrl-C, which Python raises in the main thread, cannot interrupt a message.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from bridgepack.data.tasks import Beat, InThisProcess, Runner, TaskFailure, in_order, result_of
from bridgepack.data.workers.process import Worker, limit_memory
from bridgepack.errors import DataError

#: A worker counts as stuck if its heartbeat, once started, pauses this long.
STALL_S = 600.0
#: Tasks waiting for a worker, and results waiting for their turn, per worker.
_MAX_WAITING, _MAX_UNREAD = 1, 4
#: Seconds between looks at a result that is waited for.
_LOOK_S = 1.0


class WorkerPool(AbstractContextManager["WorkerPool"]):
    """Runs tasks in workers, which it kills at the end, even in the middle of a task; not thread-safe."""

    def __init__(self, num_workers: int = 1, *, memory_bytes: int | None = None) -> None:
        """Take the arguments of `widen`, where None means no limit; starts no process yet."""
        self._lock = threading.Lock()
        self._workers: set[Worker] = set()
        self._idle: list[Worker] = []
        self._in_flight: set[Future[Any]] = set()
        self._is_closed = False
        self._allow(num_workers, memory_bytes, None)

    def begin[R](self, function: Callable[[], R]) -> Callable[[], R]:
        """Start a function in the first worker; return a function that waits for its result.

        The latter raises the function's errors for users, and DataError if the worker dies.
        """
        future = self._threads.submit(self._outcome, _without_task, function, None)
        return lambda: _load_outcome(_await_result(future))

    def widen(self, num_workers: int, memory_bytes: int, warm_up: Callable[[], Any] | None) -> None:
        """Allow more workers, after all tasks so far are finished.

        `memory_bytes` is the memory of all together beyond what each uses after `warm_up`, which a worker runs before
        its first task, unless `begin` used that worker.
        """
        self._threads.shutdown()
        self._allow(num_workers, memory_bytes, warm_up)

    def run[T, R](self, function: Callable[[T, Beat], R], tasks: Iterable[T]) -> Iterator[R | TaskFailure]:
        """Yield the outcome of each task, in order; see `Runner`."""
        bounds = (self._num_workers + _MAX_WAITING, _MAX_UNREAD * self._num_workers)
        share = None if self._memory_bytes is None else self._memory_bytes // self._num_workers
        for _, future in in_order(lambda task: self._submit(function, task, share), tasks, lambda: bounds):
            yield _await_result(future)

    def run_alone[T, R](self, function: Callable[[T, Beat], R], task: T) -> R | TaskFailure:
        """Return the outcome of a task that runs alone with all the memory."""
        wait(self._in_flight)
        self._dismiss()
        result: R | TaskFailure = _await_result(self._submit(function, task, self._memory_bytes))
        self._dismiss()
        return result

    def close(self) -> None:
        """Kill all workers."""
        with self._lock:
            self._is_closed = True
            for worker in self._workers:
                worker.kill()
        self._threads.shutdown(cancel_futures=True)
        self._dismiss()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _allow(self, num_workers: int, memory_bytes: int | None, warm_up: Callable[[], Any] | None) -> None:
        self._num_workers, self._memory_bytes, self._warm_up = num_workers, memory_bytes, warm_up
        self._threads = ThreadPoolExecutor(num_workers)

    def _submit(self, function: Callable[[Any, Beat], Any], task: Any, memory_bytes: int | None) -> Future[Any]:
        future = self._threads.submit(self._outcome, function, task, memory_bytes)
        self._in_flight.add(future)
        future.add_done_callback(self._in_flight.discard)
        return future

    def _dismiss(self) -> None:
        """End idle workers, to free their memory."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._workers.difference_update(idle)
        for worker in idle:
            worker.end()

    def _outcome(self, function: Callable[[Any, Beat], Any], task: Any, memory_bytes: int | None) -> Any:
        """Return a task's outcome from an idle or a new worker, at most one per thread; a death is a TaskFailure.

        Raises:
            BridgepackError, OSError: the task raised it.
        """
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        calls = [(function, task)]
        if memory_bytes is not None and (worker is None or not worker.is_limited):
            calls.insert(0, (limit_memory, memory_bytes))
        if worker is None:
            worker = self._start()
            calls = calls if self._warm_up is None else [(_without_task, self._warm_up), *calls]
        try:
            for call in calls:
                outcome = worker.call(*call, STALL_S)
                if worker.is_over:
                    break
                worker.is_limited |= call[0] is limit_memory
        finally:
            with self._lock:
                if worker.is_over:
                    self._workers.discard(worker)
                else:
                    self._idle.append(worker)
        return replace(outcome, task=task) if isinstance(outcome, TaskFailure) else outcome

    def _start(self) -> Worker:
        worker = Worker()
        with self._lock:
            self._workers.add(worker)
            if self._is_closed:
                worker.kill()
        return worker


@dataclass(frozen=True)
class PlainRunner:
    """Runs functions of one argument and returns only their results, as a check needs it."""

    runner: Runner

    def run[T, R](self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """Yield `function(task)` for each task, in order; see `Runner`, but a worker that dies raises DataError."""
        for outcome in self.runner.run(partial(_without_beat, function), tasks):
            yield result_of(outcome)


@contextmanager
def plain_runner(num_workers: int) -> Iterator[PlainRunner]:
    """Yield a runner with `num_workers` processes, killed on errors; with 1 it runs tasks in this process."""
    with WorkerPool(num_workers) if num_workers > 1 else nullcontext(InThisProcess()) as runner:
        yield PlainRunner(runner)


def _await_result(future: Future[Any]) -> Any:
    """Return a future's result; a signal that comes as the wait begins is handled within a second, not at its end.

    Python notes such a signal, but the lock that it then waits for wakes up for later signals alone.
    """
    while not future.done():
        wait([future], timeout=_LOOK_S)
    return future.result()


def _load_outcome[R](outcome: R | TaskFailure) -> R:
    if isinstance(outcome, TaskFailure) and outcome.kind == "died":
        raise DataError(
            f"loading the tokenizer: {outcome.detail}; usually memory ran out. Finished work is kept; "
            "free memory and run the same command again."
        )
    return result_of(outcome)


def _without_beat[T, R](function: Callable[[T], R], task: T, _: Beat) -> R:
    return function(task)


def _without_task[R](function: Callable[[], R], _: Beat) -> R:
    return function()
