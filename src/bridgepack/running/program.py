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
    """Return the exit code of a task's step, or of the error, Ctrl-C or SIGTERM that ended it.

    Schedulers end a job with SIGTERM; it interrupts the step, so that no half-written files remain.
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
    """Return the message of a bridgepack or system error."""
    if isinstance(error, BridgepackError):
        return printable(str(error))
    place = f"{str(error.filename)!r}: " if error.filename else ""
    return printable(f"{place}{error.strerror or error}. Check the path and its permissions.")


def say(text: str) -> None:
    """Write lines into the log of the task."""
    sys.stdout.write(f"{text.rstrip()}\n")
    sys.stdout.flush()


def num_cores() -> int:
    """Return the number of CPU cores that the task may use."""
    return len(os.sched_getaffinity(0))
