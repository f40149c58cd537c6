"""Signals while a launch waits, and the end of every process that a run has left on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GRACE_S = 5.0
_POLL_S = 0.1


@contextlib.contextmanager
def restored_signals() -> Iterator[None]:
    """Give signals back their handlers at the end; torchx, below nemo-run, takes those of SIGINT and SIGTERM."""
    before = {number: signal.getsignal(number) for number in _SIGNALS} if _is_main_thread() else {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def interrupt_on_signals() -> threading.Event:
    """Let SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt, and return what is set once one has come.

    One that is ignored, as under nohup, stays so. What is returned has to be looked at: nemo-run asks for the state of
    a job in `try ... finally: return`, which swallows whatever is raised there.
    """
    has_come = threading.Event()

    def interrupt(_number: int, _frame: FrameType | None) -> Any:
        has_come.set()
        raise KeyboardInterrupt

    if _is_main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, interrupt)
    return has_come


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Let no signal interrupt the body; it ends within seconds."""
    if not _is_main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


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
