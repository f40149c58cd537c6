"""How a task ends, which process of a job it is, and SIGTERM as an interruption."""

import os
import signal
import socket
from collections.abc import Callable, Iterator

import pytest

from bridgepack.errors import ArtifactError, ConfigError
from bridgepack.running.assignment import exit_code_of
from bridgepack.running.job import Identity, Job, Stop


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def raising(error: BaseException) -> Callable[[], int]:
    def step() -> int:
        raise error

    return step


@pytest.mark.parametrize(
    ("step", "code", "message"),
    [
        (lambda: 1, 1, ""),
        (raising(ArtifactError("'x' is none. Build it.\x1b[31m")), 2, "error: 'x' is none. Build it.\ufffd"),
        (raising(PermissionError(13, "Permission denied", "/x")), 2, "error: '/x': Permission denied. Check the path"),
        (raising(KeyboardInterrupt()), 130, "interrupted"),
        (lambda: os.kill(os.getpid(), signal.SIGTERM) or signal.pause() or 0, 130, "interrupted"),
    ],
)
def test_every_end_has_its_code_and_bugs_keep_their_traceback(
    step: Callable[[], int], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(step) == code
    assert capsys.readouterr().out.startswith(message)
    with pytest.raises(ZeroDivisionError):
        exit_code_of(lambda: 1 // 0)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Identity(rank=0, world_size=1)),
        ({"RANK": "3", "WORLD_SIZE": "8"}, Identity(rank=3, world_size=8)),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "4"}, Identity(rank=2, world_size=4)),
        ({"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, Identity(rank=1, world_size=2)),
    ],
)
def test_identity_is_what_the_launcher_says(environment: dict[str, str], expected: Identity) -> None:
    assert Identity.from_environment(environment) == expected


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"RANK": "two", "WORLD_SIZE": "4"}, "RANK is 'two'"),
        ({"RANK": "-1", "WORLD_SIZE": "4"}, "RANK is '-1'"),
        ({"RANK": "4", "WORLD_SIZE": "4"}, "RANK is 4 and WORLD_SIZE is 4"),
        ({"RANK": "1"}, "WORLD_SIZE is 1"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE is 0"),
    ],
)
def test_an_identity_that_cannot_be_is_refused(environment: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Identity.from_environment(environment)


def test_a_job_of_one_process_waits_for_nobody_and_tells_itself() -> None:
    told: list[Stop] = []
    job = Job(Identity(), report=told.append)
    stop = Stop(exit_code=1, message="no")

    job.join()
    job.approve()
    job.await_approval()
    job.stop(stop)
    job.finish()

    assert told == [stop]
    assert not job.is_stopping(wait_s=5.0)


@pytest.mark.parametrize("variable", ["MASTER_PORT", "SLURM_JOB_ID", ""])
def test_a_process_that_is_alone_meets_itself_at_a_free_port(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {variable: "4711"})
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        Job(Identity(), report=print).join()

        if variable:
            assert os.environ == {variable: "4711"}
        else:
            port = int(os.environ["MASTER_PORT"])
            assert 1024 < port != busy.getsockname()[1]
            with socket.socket() as free:
                free.bind(("127.0.0.1", port))
