"""Tasks in this process: results, errors, and failures that are no errors."""

import os

import pytest

from bridgepack.data.tasks import Beat, InThisProcess, TaskFailure, result_of
from bridgepack.errors import DataError


class Panic(BaseException):
    """What Rust code raises when it panics: no Exception."""


def _work(number: int, beat: Beat) -> int:
    beat(number * 10)
    if number == 3:
        raise DataError("it is three. Take another.")
    if number == 4:
        raise Panic("it panicked")
    if number == 5:
        raise MemoryError
    if number == 6:
        raise OSError("no space")
    return number + os.getpid()


def test_tasks_run_here_in_order() -> None:
    assert list(InThisProcess().run(_work, [0, 1])) == [os.getpid(), os.getpid() + 1]


@pytest.mark.parametrize(("number", "kind"), [(3, DataError), (6, OSError)])
def test_errors_of_users_and_of_the_system_pass(number: int, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        list(InThisProcess().run(_work, [number]))


@pytest.mark.parametrize(
    ("number", "detail", "is_memory"), [(4, "Panic: it panicked", False), (5, "MemoryError: ", True)]
)
def test_anything_else_is_the_failure_of_its_task(number: int, detail: str, is_memory: bool) -> None:
    first, failure, last = InThisProcess().run(_work, [0, number, 1])

    assert (first, last) == (os.getpid(), os.getpid() + 1)
    assert isinstance(failure, TaskFailure)
    assert (failure.task, failure.kind, failure.detail, failure.is_memory) == (number, "raised", detail, is_memory)
    assert failure.last_beat == number * 10
    with pytest.raises(RuntimeError, match=r"(?s)a task failed in another process:\n.*_work"):
        result_of(failure)
