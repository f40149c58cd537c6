"""Signal handling while a launch waits, and clean-up of processes that a run left on this machine."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GRACE_S = 5.0
_POLL_S = 0.1
_STDERR = 2
_NOTED = b"interrupted: stops once nemo-run has submitted what it is submitting; once more stops at once\n"


@contextlib.contextmanager
def restore_signals() -> Iterator[None]:
    """Restore the signal handlers at the end, because torchx, below nemo-run, replaces those of SIGINT and SIGTERM."""
    before = {number: signal.getsignal(number) for number in _SIGNALS} if _is_main_thread() else {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


class Interruption:
    """Records whether SIGINT, SIGTERM or SIGHUP has arrived; signals that are ignored, as under nohup, stay ignored.

    A KeyboardInterrupt raised inside nemo-run can get lost, or end a submission whose job is then unknown: nemo-run
    queries states in `try ... finally: return`, and invoke, which runs sbatch and sacct, forwards interrupts to them
    (invoke/runners.py, `_run_body`). So signals are recorded while nemo-run works, and raised while this process waits.

    Attributes:
        has_come: a signal has arrived.
        code: exit code for the first signal, 128 and its number.
    """

    def __init__(self) -> None:
        self.has_come, self.code = False, 128 + signal.SIGINT

    def note(self) -> None:
        """Record the first signal; only a second one raises KeyboardInterrupt."""
        _handle(self._note)

    def catch(self) -> None:
        """Make every signal raise KeyboardInterrupt, at once if one was recorded before."""
        _handle(self._raise)
        self.check()

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal was recorded."""
        if self.has_come:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.has_come:
            self._raise(number, frame)
        self._record(number)
        with contextlib.suppress(OSError):
            os.write(_STDERR, _NOTED)

    def _raise(self, number: int, _frame: FrameType | None) -> None:
        self._record(number)
        raise KeyboardInterrupt

    def _record(self, number: int) -> None:
        if not self.has_come:
            self.has_come, self.code = True, 128 + number


def _handle(handler: Callable[[int, FrameType | None], None]) -> None:
    if _is_main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, handler)


@contextlib.contextmanager
def block_interrupts() -> Iterator[None]:
    """Block interrupts during the body, which takes only seconds."""
    with restore_signals():
        for number in _SIGNALS if _is_main_thread() else ():
            signal.signal(number, signal.SIG_IGN)
        yield


def end_processes(variable: str, value: str) -> None:
    """Terminate, then kill, every process of this user that has an environment variable with a value.

    torchrun starts processes in separate sessions; they survive if torchrun is killed.
    """
    deadline = time.monotonic() + _GRACE_S
    for process in _processes_with(variable, value):
        _send(process, signal.SIGTERM)
    while survivors := _processes_with(variable, value):
        if time.monotonic() > deadline:
            for process in survivors:
                _send(process, signal.SIGKILL)
            return
        time.sleep(_POLL_S)


def _processes_with(variable: str, value: str) -> list[int]:
    entry = f"{variable}={value}".encode()
    process_ids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if entry in path.read_bytes().split(b"\0") and int(path.parent.name) != os.getpid():
                process_ids.append(int(path.parent.name))
    return process_ids


def _send(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
