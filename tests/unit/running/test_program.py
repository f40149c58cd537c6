"""How a task ends: its exit code, one message, and SIGTERM as an interruption."""

import os
import signal
from collections.abc import Callable, Iterator

import pytest

from bridgepack.errors import ArtifactError
from bridgepack.running.assignment import exit_code_of


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
        (
            raising(ArtifactError("'x' is no artifact. Build it.\x1b[31m")),
            2,
            "error: 'x' is no artifact. Build it.\ufffd",
        ),
        (raising(PermissionError(13, "Permission denied", "/x")), 2, "error: '/x': Permission denied. Check the path"),
        (raising(KeyboardInterrupt()), 130, "interrupted"),
        (lambda: os.kill(os.getpid(), signal.SIGTERM) or signal.pause() or 0, 130, "interrupted"),
    ],
)
def test_every_end_has_its_code(
    step: Callable[[], int], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(step) == code
    assert capsys.readouterr().out.startswith(message)


def test_bugs_keep_their_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        exit_code_of(lambda: 1 // 0)
