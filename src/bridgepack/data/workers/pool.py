"""Workers as processes of their own: tasks go to whichever is free, results come in order, the dead are replaced.

A thread talks to each worker, so that Ctrl-C, which Python raises in the main thread, never comes between the two.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from bridgepack.data.tasks import Beat, InThisProcess, Runner, TaskFailure, in_order, result_of
from bridgepack.data.workers.process import Worker, limit_memory
from bridgepack.errors import DataError

#: A worker that shows no sign of life for so long, after it began to show some, is taken for stuck.
STALL_S = 600.0
#: Tasks that wait for a worker, and results that wait for their turn, per worker.
_MAX_WAITING, _MAX_UNREAD = 1, 4


class WorkerPool:
    """Runs tasks in workers; its methods are for one thread."""

    def __init__(self, num_workers: int = 1, *, memory_bytes: int | None = None) -> None:
        """Start nothing yet; the arguments are those of `widen`, where None stands for no limit."""
        self._lock = threading.Lock()
        self._workers: set[Worker] = set()
        self._idle: list[Worker] = []
        self._in_flight: set[Future[Any]] = set()
        self._is_closed = False
        self._allow(num_workers, memory_bytes, None)

    def begin[R](self, function: Callable[[], R]) -> Callable[[], R]:
        """Begin to run a function in the first worker; return what waits for its result.

        That raises what the function raises for users, and DataError when the worker dies.
        """
        future = self._threads.submit(self._outcome, _without_task, function, None)
        return lambda: _loaded(future.result())

    def widen(self, num_workers: int, memory_bytes: int, warm_up: Callable[[], Any] | None) -> None:
        """Go on with more workers, once all that was begun is over.

        Args:
            num_workers: most at a time.
            memory_bytes: what all of them together may use beyond what each has once it is warm.
            warm_up: what a worker runs before its first task, unless something was begun there.
        """
        self._threads.shutdown()
        self._allow(num_workers, memory_bytes, warm_up)

    def run[T, R](self, function: Callable[[T, Beat], R], tasks: Iterable[T]) -> Iterator[R | TaskFailure]:
        """Yield what becomes of each task, in order, as `Runner` says."""
        most = (self._num_workers + _MAX_WAITING, _MAX_UNREAD * self._num_workers)
        share = None if self._memory_bytes is None else self._memory_bytes // self._num_workers
        for _, future in in_order(lambda task: self._submit(function, task, share), tasks, lambda: most):
            yield future.result()

    def run_alone[T, R](self, function: Callable[[T, Beat], R], task: T) -> R | TaskFailure:
        """Return what becomes of a task that has all the memory."""
        wait(self._in_flight)
        self._dismiss()
        result: R | TaskFailure = self._submit(function, task, self._memory_bytes).result()
        self._dismiss()
        return result

    def close(self) -> None:
        """End every worker at once."""
        with self._lock:
            self._is_closed = True
            for worker in self._workers:
                worker.kill()
        self._threads.shutdown(cancel_futures=True)
        self._dismiss()

    def __enter__(self) -> Self:
        """Return the pool."""
        return self

    def __exit__(self, *_: object) -> None:
        """End its workers, in the middle of a task if need be."""
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
        """End idle workers, so that what they hold is free."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._workers.difference_update(idle)
        for worker in idle:
            worker.end()

    def _outcome(self, function: Callable[[Any, Beat], Any], task: Any, memory_bytes: int | None) -> Any:
        """Run a task in an idle worker, or a new one: there are never more than threads. A death is the task's failure.

        Raises:
            BridgepackError, OSError: what the task raised.
        """
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        calls = [(function, task)]
        if memory_bytes is not None and (worker is None or not worker.is_limited):
            calls.insert(0, (limit_memory, memory_bytes))
        if worker is None:
            worker = self._started()
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

    def _started(self) -> Worker:
        worker = Worker()
        with self._lock:
            self._workers.add(worker)
            if self._is_closed:
                worker.kill()
        return worker


@dataclass(frozen=True)
class PlainRunner:
    """Runs functions of one argument and gives their results alone: for a check, which needs no more."""

    runner: Runner

    def run[T, R](self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """Yield `function(task)` for each task, in order; only a few tasks are in flight at a time.

        Args:
            function: defined at the top of a module, or the method of something that can be pickled.
            tasks: picklable; taken from the iterable as workers become free.

        Raises:
            DataError: when a worker process dies.
        """
        for outcome in self.runner.run(partial(_without_beat, function), tasks):
            yield result_of(outcome)


@contextmanager
def plain_runner(num_workers: int) -> Iterator[PlainRunner]:
    """Give a runner with `num_workers` processes, which an error ends at once; with 1 it runs tasks in this process."""
    if num_workers <= 1:
        yield PlainRunner(InThisProcess())
        return
    with WorkerPool(num_workers) as pool:
        yield PlainRunner(pool)


def _loaded[R](outcome: R | TaskFailure) -> R:
    if isinstance(outcome, TaskFailure) and outcome.kind == "died":
        raise DataError(
            f"loading the tokenizer: {outcome.detail}, most often because memory ran out. What is finished is kept; "
            "free memory and run the same command again."
        )
    return result_of(outcome)


def _without_beat[T, R](function: Callable[[T], R], task: T, _: Beat) -> R:
    return function(task)


def _without_task[R](function: Callable[[], R], _: Beat) -> R:
    return function()
