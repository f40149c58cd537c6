"""Runs a list of tasks and gives what became of them, in the order of the tasks: the interface, and this process."""

import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, Protocol, runtime_checkable

from bridgepack.errors import BridgepackError, DataError

#: How often one looks how many tasks may be under way.
_LOOK_S = 1.0
#: Called by a task with the number of what it is about to do; shows that it is alive, and where it was if it dies. With
#: a number below 0 the task says that what follows may take as long as it likes.
Beat = Callable[[int], None]


@runtime_checkable
class Progress(Protocol):
    """Told how far a stage is; shows it, or does nothing."""

    def start(self, stage: str, total: int | None, unit: str) -> None:
        """Begin a stage of `total` work, None where that is not known; it makes things called `unit`."""

    def advance(self, num_items: int, work: int | None = None) -> None:
        """Note that `num_items` more things are made and `work` of the total is done; by default as much."""

    def finish(self) -> None:
        """End the stage."""


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
    """A task that gave nothing, through no error that a user is meant to see."""

    task: Any  #: the task
    #: its process `died`, did nothing for too long and was `stalled`, or the task `raised`
    kind: Literal["died", "stalled", "raised"]
    detail: str  #: signal, exit code or exception, in a few words
    is_memory: bool = False  #: memory ran out, as far as one can tell
    last_beat: int = -1  #: number of the last beat; -1 where there was none
    trace: str = ""  #: of an exception; empty otherwise


class Runner(Protocol):
    """Runs tasks; what they give does not depend on where and how many at a time."""

    def run[T, R](self, function: Callable[[T, Beat], R], tasks: Iterable[T]) -> Iterator[R | TaskFailure]:
        """Yield `function(task, beat)` or the task's failure for each task, in order; a few are in flight at a time.

        Args:
            function: defined at the top of a module, so that a worker can import it.
            tasks: picklable; taken from the iterable as workers become free.

        Raises:
            BridgepackError, OSError: what a task raised.
        """
        ...

    def run_alone[T, R](self, function: Callable[[T, Beat], R], task: T) -> R | TaskFailure:
        """Return the same for one task that has all the memory, because no other runs meanwhile."""
        ...


def in_order[T, R](
    submit: Callable[[T], Future[R]], tasks: Iterable[T], most: Callable[[], tuple[int, int]]
) -> Iterator[tuple[T, Future[R]]]:
    """Yield each task and what has become of it, in order; few are under way at a time, and few wait for their turn.

    Args:
        submit: begins a task.
        tasks: taken from the iterable as there is room for them.
        most: tasks under way, and tasks under way or not read; asked again and again.
    """
    begun: deque[tuple[T, Future[R]]] = deque()
    waiting_for = iter(tasks)
    try:
        while True:
            most_under_way, most_unread = most()
            under_way = [future for _, future in begun if not future.done()]
            room = min(most_under_way - len(under_way), most_unread - len(begun))
            begun += [(task, submit(task)) for task in islice(waiting_for, max(room, 0))]
            if not begun:
                return
            if begun[0][1].done():
                yield begun.popleft()
            else:
                under_way = [future for _, future in begun if not future.done()]
                wait(under_way, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
    finally:
        for _, future in begun:
            future.cancel()


class InThisProcess:
    """Runs tasks one after the other where it is called; a task that ends the process ends the build."""

    def begin[R](self, function: Callable[[], R]) -> Callable[[], R]:
        """Return what runs a function, once its result is asked for."""
        return function

    def run[T, R](self, function: Callable[[T, Beat], R], tasks: Iterable[T]) -> Iterator[R | TaskFailure]:
        """Yield what becomes of each task."""
        for task in tasks:
            yield self.run_alone(function, task)

    def run_alone[T, R](self, function: Callable[[T, Beat], R], task: T) -> R | TaskFailure:
        """Return what becomes of a task."""
        beats = deque([-1], maxlen=1)
        try:
            return function(task, beats.append)
        except BaseException as error:  # Rust code that panics raises no Exception
            if is_meant_for_users(error):
                raise
            return failure_of(error, task, beats[0])


def result_of[R](outcome: R | TaskFailure) -> R:
    """Return a task's result.

    Raises:
        DataError: when its process died.
        RuntimeError: when it raised what no user is meant to see.
    """
    if not isinstance(outcome, TaskFailure):
        return outcome
    if outcome.trace:
        raise RuntimeError(f"a task failed in another process:\n{outcome.trace}")
    raise DataError(
        f"a worker process ended ({outcome.detail}), most often because memory ran out. Try fewer --workers."
    )


def is_meant_for_users(error: BaseException) -> bool:
    """Say whether an error of a task stops the build as it is."""
    passes = (BridgepackError, OSError, KeyboardInterrupt, SystemExit, GeneratorExit)
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
