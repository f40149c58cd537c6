"""The interface for running tasks with results in task order, and a runner in this process."""

import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, Protocol

from bridgepack.errors import BridgepackError, DataError, UnreachableError
from bridgepack.records import Progress as Progress

#: Interval for checking how many tasks may be in flight.
_LOOK_S = 1.0
#: Heartbeat: a task calls it with the number of its next step, which shows that the task is alive, and where it was if
#: it dies. A number below 0 says that the next step may take any time.
Beat = Callable[[int], None]


class SilentProgress:
    """Shows nothing."""

    def start(self, stage: str, total: int | None, unit: str) -> None:
        """Begin a stage."""

    def advance(self, num_items: int, work: int | None = None) -> None:
        """Note progress."""

    def finish(self) -> None:
        """End the stage."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskFailure:
    """A task without a result, because of a crash or an unexpected error."""

    task: Any  #: the task
    #: its process `died`, was `stalled` without a heartbeat for too long, or the task `raised`
    kind: Literal["died", "stalled", "raised"]
    detail: str  #: signal, exit code or exception, in a few words
    is_memory: bool = False  #: memory probably ran out
    last_beat: int = -1  #: number of the last heartbeat; -1 if there was none
    trace: str = ""  #: traceback of an exception; otherwise empty


class Runner(Protocol):
    """Runs tasks; the results do not depend on where and how many run at a time."""

    def run[T, R](self, function: Callable[[T, Beat], R], tasks: Iterable[T]) -> Iterator[R | TaskFailure]:
        """Yield `function(task, beat)` or the task's failure for each task, in order; runs a few tasks at a time.

        Functions are importable, tasks picklable, and taken from the iterable as workers become free.

        Raises:
            BridgepackError, OSError: a task raised it.
        """
        ...

    def run_alone[T, R](self, function: Callable[[T, Beat], R], task: T) -> R | TaskFailure:
        """Return the result or failure of one task that runs alone, so that it can use all the memory."""
        ...


def in_order[T, R](
    submit: Callable[[T], Future[R]], tasks: Iterable[T], limits: Callable[[], tuple[int, int]]
) -> Iterator[tuple[T, Future[R]]]:
    """Yield each task and its outcome, in order; takes tasks from the iterable when there is room.

    `limits` returns (maximum tasks in flight, maximum tasks in flight or waiting to be read), and is called repeatedly.
    """
    task_futures: deque[tuple[T, Future[R]]] = deque()
    waiting_for = iter(tasks)
    try:
        while True:
            most_under_way, most_unread = limits()
            under_way = [future for _, future in task_futures if not future.done()]
            room = min(most_under_way - len(under_way), most_unread - len(task_futures))
            task_futures += [(task, submit(task)) for task in islice(waiting_for, max(room, 0))]
            if not task_futures:
                return
            if task_futures[0][1].done():
                yield task_futures.popleft()
            else:
                under_way = [future for _, future in task_futures if not future.done()]
                wait(under_way, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
    finally:
        for _, future in task_futures:
            future.cancel()


class InThisProcess:
    """Runs tasks one after the other in this process; a task that crashes the process ends the build."""

    def begin[R](self, function: Callable[[], R]) -> Callable[[], R]:
        """Return a function that runs `function` when it is called for the result."""
        return function

    def run[T, R](self, function: Callable[[T, Beat], R], tasks: Iterable[T]) -> Iterator[R | TaskFailure]:
        """Yield the outcome of each task."""
        for task in tasks:
            yield self.run_alone(function, task)

    def run_alone[T, R](self, function: Callable[[T, Beat], R], task: T) -> R | TaskFailure:
        """Return the outcome of a task."""
        beats = deque([-1], maxlen=1)
        try:
            return function(task, beats.append)
        except BaseException as error:  # panics in Rust code are not Exceptions
            if is_meant_for_users(error):
                raise
            return failure_of(error, task, beats[0])


def result_of[R](outcome: R | TaskFailure) -> R:
    """Return a task's result.

    Raises:
        DataError: its process died.
        RuntimeError: it raised an unexpected error.
    """
    if not isinstance(outcome, TaskFailure):
        return outcome
    if outcome.trace:
        raise RuntimeError(f"a task failed in another process:\n{outcome.trace}")
    raise DataError(f"a worker process died ({outcome.detail}); usually memory ran out. Try fewer --num-workers.")


def is_meant_for_users(error: BaseException) -> bool:
    """Return whether a task's error is shown to the user unchanged."""
    passes = (BridgepackError, UnreachableError, OSError, KeyboardInterrupt, SystemExit, GeneratorExit)
    return isinstance(error, passes) and not isinstance(error, MemoryError)


def failure_of(error: BaseException, task: Any, last_beat: int) -> TaskFailure:
    """Return an unexpected exception as the failure of its task."""
    return TaskFailure(
        task=task,
        kind="raised",
        detail=f"{type(error).__name__}: {error}"[:300],
        is_memory=isinstance(error, MemoryError),
        last_beat=last_beat,
        trace="".join(traceback.format_exception(error)),
    )
