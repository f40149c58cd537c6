"""Runs a list of tasks in this process or in several, and gives their results in the order of the tasks."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Protocol

from bridgepack.errors import DataError


class Progress(Protocol):
    """Told how far a stage is; shows it, or does nothing."""

    def start(self, stage: str, total: int | None, unit: str) -> None:
        """Begin a stage of `total` work, None where that is not known; it makes things called `unit`."""
        ...

    def advance(self, num_items: int, work: int | None = None) -> None:
        """Note that `num_items` more things are made and `work` of the total is done; by default as much."""
        ...

    def finish(self) -> None:
        """End the stage."""
        ...


class SilentProgress:
    """Shows nothing."""

    def start(self, stage: str, total: int | None, unit: str) -> None:
        """Begin a stage."""

    def advance(self, num_items: int, work: int | None = None) -> None:
        """Note progress."""

    def finish(self) -> None:
        """End the stage."""


class Runner:
    """Runs tasks; what they give does not depend on how many workers there are."""

    def __init__(self, executor: ProcessPoolExecutor | None, num_workers: int) -> None:
        self._executor = executor
        self._num_workers = num_workers

    def run[T, R](self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """Yield `function(task)` for each task, in order; only a few tasks are in flight at a time.

        Args:
            function: defined at the top of a module, so that a worker can import it.
            tasks: picklable; taken from the iterable as workers become free.

        Raises:
            DataError: when a worker process dies.
        """
        if self._executor is None:
            yield from map(function, tasks)
            return
        pending: deque[Future[R]] = deque()
        try:
            for task in tasks:
                with _interrupts_held():
                    pending.append(self._executor.submit(function, task))
                if len(pending) >= 4 * self._num_workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BrokenProcessPool:
            raise DataError(
                "a worker process died, most often because memory ran out. Nothing was written; "
                f"try fewer than --workers {self._num_workers}."
            ) from None
        finally:
            for future in pending:
                future.cancel()


@contextmanager
def runner(num_workers: int) -> Iterator[Runner]:
    """Give a runner with `num_workers` processes, which an error ends at once; with 1 it runs tasks in this process."""
    if num_workers <= 1:
        yield Runner(None, 1)
        return
    others = set(multiprocessing.active_children())
    executor = ProcessPoolExecutor(
        max_workers=num_workers, mp_context=multiprocessing.get_context("spawn"), initializer=_begin_worker
    )
    try:
        yield Runner(executor, num_workers)
    except BaseException:
        for worker in set(multiprocessing.active_children()) - others:
            worker.terminate()
        raise
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back; a process that starts meanwhile never gets it, and leaves it to the parent."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin_worker() -> None:
    """Take one core, and end with the parent, whatever ended that: a worker left behind would go on writing."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
