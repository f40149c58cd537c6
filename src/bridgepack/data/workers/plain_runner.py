"""Functions of one argument in several processes: for a check, which needs no more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from bridgepack.data.tasks import Beat, InThisProcess, Runner, result_of
from bridgepack.data.workers.pool import worker_pool
from bridgepack.data.workers.server_process import worker_server


class PlainRunner:
    """Runs functions of one argument and gives their results alone."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def run[T, R](self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """Yield `function(task)` for each task, in order; only a few tasks are in flight at a time.

        Args:
            function: defined at the top of a module, or the method of something that can be pickled.
            tasks: picklable; taken from the iterable as workers become free.

        Raises:
            DataError: when a worker process dies.
        """
        for outcome in self._runner.run(partial(_without_beat, function), tasks):
            yield result_of(outcome)


@contextmanager
def plain_runner(num_workers: int) -> Iterator[PlainRunner]:
    """Give a runner with `num_workers` processes, which an error ends at once; with 1 it runs tasks in this process."""
    if num_workers <= 1:
        yield PlainRunner(InThisProcess())
        return
    with worker_server() as server, worker_pool(server, num_workers) as pool:
        yield PlainRunner(pool)


def _without_beat[T, R](function: Callable[[T], R], task: T, _: Beat) -> R:
    return function(task)
