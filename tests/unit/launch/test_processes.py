import os
import signal
from collections.abc import Iterator

import pytest

from bridgepack.launch.processes import Interruption, restored_signals


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    with restored_signals():
        yield


def test_a_signal_that_is_noted_is_raised_as_soon_as_signals_are_caught(capfd: pytest.CaptureFixture[str]) -> None:
    interruption = Interruption()
    interruption.note()

    os.kill(os.getpid(), signal.SIGTERM)

    assert interruption.has_come
    assert capfd.readouterr().err.startswith("interrupted: ")
    for raises in (interruption.check, interruption.catch):
        with pytest.raises(KeyboardInterrupt):
            raises()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_second_signal_raises(number: signal.Signals) -> None:
    interruption = Interruption()
    interruption.note()
    os.kill(os.getpid(), number)

    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)


def test_a_signal_that_is_caught_raises_and_stays_known() -> None:
    interruption = Interruption()
    interruption.catch()
    interruption.check()

    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        interruption.check()


def test_signals_that_are_ignored_stay_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interruption = Interruption()
    interruption.catch()

    os.kill(os.getpid(), signal.SIGHUP)

    assert not interruption.has_come
