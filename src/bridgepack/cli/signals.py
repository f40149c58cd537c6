"""How commands end that are told to."""

from __future__ import annotations

import signal
from threading import current_thread, main_thread
from types import FrameType

from bridgepack.cli.output import INTERRUPTED


class StopSignals:
    """Lets SIGTERM, by which schedulers end a job, and SIGHUP end a command as Ctrl-C does, with nothing left behind.

    Attributes:
        code: with which a command exits that was ended: 130, 143 after SIGTERM, 129 after SIGHUP.
    """

    def __init__(self) -> None:
        self.code = INTERRUPTED
        if current_thread() is main_thread():
            for number in (signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) == signal.SIG_DFL:
                    signal.signal(number, self._interrupt)

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        self.code = 128 + number
        raise KeyboardInterrupt
