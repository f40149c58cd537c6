"""Tasks in one process and in several: the same results in the same order, errors, and an end in every case."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from bridgepack.data.execution import runner
from bridgepack.errors import DataError


def _square(number: int) -> int:
    time.sleep(0.001 * (number % 3))
    return number * number


def _refuse_seven(number: int) -> int:
    if number == 7:
        raise DataError("it is seven. Take another.")
    return number


def _die(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def _signals(_: int) -> tuple[bool, str]:
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, set())
    return signal.SIGINT in blocked, os.environ.get("TOKENIZERS_PARALLELISM", "")


def test_results_come_in_the_order_of_the_tasks() -> None:
    num_taken = 0

    def tasks() -> Iterator[int]:
        nonlocal num_taken
        for number in range(40):
            num_taken += 1
            yield number

    with runner(2) as workers:
        results = workers.run(_square, tasks())
        assert next(results) == 0
        assert num_taken <= 8
        assert [0, *results] == [number * number for number in range(40)]
        assert list(workers.run(_square, [])) == []
        assert set(workers.run(_signals, [1, 2])) == {(True, "false")}
        with pytest.raises(DataError, match=r"it is seven. Take another."):
            list(workers.run(_refuse_seven, range(100)))
        assert list(workers.run(_square, [3])) == [9]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, set())


def test_one_worker_is_this_process() -> None:
    with runner(1) as workers:
        assert list(workers.run(lambda number: os.getpid() + number, [0, 1])) == [os.getpid(), os.getpid() + 1]


def test_worker_that_dies_is_a_message() -> None:
    with pytest.raises(DataError, match=r"a worker process died.*fewer than --workers 2"), runner(2) as workers:
        list(workers.run(_die, range(20)))
