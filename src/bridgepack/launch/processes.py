"""Signals while a launch waits, and the end of every process that a run has left on this machine."""

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
def restored_signals() -> Iterator[None]:
    """Give signals back their handlers at the end; torchx, below nemo-run, takes those of SIGINT and SIGTERM."""
    before = {number: signal.getsignal(number) for number in _SIGNALS} if _is_main_thread() else {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


class Interruption:
    """Whether SIGINT, SIGTERM or SIGHUP has asked this process to stop; one that is ignored, as under nohup, stays so.

    A KeyboardInterrupt that is raised inside nemo-run may never arrive, or end a submission whose job is then unknown:
    it asks for states in `try ... finally: return`, and invoke, which runs sbatch and sacct, gives interrupts to them
    (invoke/runners.py, `_run_body`). So it is only noted while nemo-run works, and raised while this process waits.
    """

    def __init__(self) -> None:
        self.has_come = False

    def note(self) -> None:
        """Let a first signal be noted, and only a second one raise KeyboardInterrupt."""
        _handle(self._note)

    def catch(self) -> None:
        """Let every signal raise KeyboardInterrupt, as one does that has come before."""
        _handle(self._raise)
        self.check()

    def check(self) -> None:
        """Raise KeyboardInterrupt where a signal has come."""
        if self.has_come:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.has_come:
            self._raise(number, frame)
        self.has_come = True
        with contextlib.suppress(OSError):
            os.write(_STDERR, _NOTED)

    def _raise(self, _number: int, _frame: FrameType | None) -> None:
        self.has_come = True
        raise KeyboardInterrupt


def _handle(handler: Callable[[int, FrameType | None], None]) -> None:
    if _is_main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, handler)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Let no signal interrupt the body; it ends within seconds."""
    with restored_signals():
        for number in _SIGNALS if _is_main_thread() else ():
            signal.signal(number, signal.SIG_IGN)
        yield


def end_processes(variable: str, value: str) -> None:
    """End every process of this user that has an environment variable: first asked to, then killed.

    Processes that torchrun starts are in sessions of their own, and outlive it where it is killed.
    """
    deadline = time.monotonic() + _GRACE_S
    for process in _processes_with(variable, value):
        _send(process, signal.SIGTERM)
    while left := _processes_with(variable, value):
        if time.monotonic() > deadline:
            for process in left:
                _send(process, signal.SIGKILL)
            return
        time.sleep(_POLL_S)


def _processes_with(variable: str, value: str) -> list[int]:
    """Return the ids of the processes that have a variable; none where the system does not tell."""
    wanted = f"{variable}={value}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in path.read_bytes().split(b"\0") and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
    return found


def _send(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
