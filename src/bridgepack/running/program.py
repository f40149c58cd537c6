"""How a task of a launch ends: its exit code, and one message instead of a traceback."""

import os
import signal
import sys
import threading
from collections.abc import Callable

from bridgepack.errors import BridgepackError
from bridgepack.report.text import printable

SUCCEEDED, FINDINGS, COULD_NOT_RUN, INTERRUPTED = 0, 1, 2, 130


def exit_code_of(step: Callable[[], int]) -> int:
    """Return what a task's step returns, or the exit code of the mistake, Ctrl-C or SIGTERM that ended it.

    Schedulers end a job by SIGTERM; it interrupts the step, so that nothing half-written is left.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return step()
    except (BridgepackError, OSError) as error:
        say(f"error: {told(error)}")
        return COULD_NOT_RUN
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED


def told(error: BridgepackError | OSError) -> str:
    """Return a mistake, or what the system refuses, for people."""
    if isinstance(error, BridgepackError):
        return printable(str(error))
    place = f"{str(error.filename)!r}: " if error.filename else ""
    return printable(f"{place}{error.strerror or error}. Check the path and its rights.")


def say(text: str) -> None:
    """Write lines into the log of the task."""
    sys.stdout.write(f"{text.rstrip()}\n")
    sys.stdout.flush()


def num_cores() -> int:
    """Return how many cores the task may use."""
    return len(os.sched_getaffinity(0))
