"""Waits for a process and looks at the memory of its session meanwhile."""

from __future__ import annotations

import os
import select
import signal
import time

from benchlib.memory import Memory, session_memory

#: Seconds between two looks at memory; a look takes some milliseconds, and longer where there is much to look at.
_LOOK_S, _LOOK_FRACTION = 0.1, 0.02


def watch(pid: int, *, limit_s: float) -> tuple[Memory, bool]:
    """Return the highest memory of the session that a process leads, and whether the process ended by itself.

    A process that has not ended after `limit_s`, or at Ctrl-C, is killed with everything in its process group.
    """
    peak, deadline = Memory(), time.perf_counter() + limit_s
    exit_file = os.pidfd_open(pid)
    exit_poll = select.poll()
    exit_poll.register(exit_file, select.POLLIN)
    pause_s = _LOOK_S
    try:
        while not exit_poll.poll(1000 * pause_s):
            begin = time.perf_counter()
            peak = peak.highest(session_memory(pid))
            pause_s = max(_LOOK_S, (time.perf_counter() - begin) / _LOOK_FRACTION)
            if time.perf_counter() > deadline:
                os.killpg(pid, signal.SIGKILL)
                return peak, False
        return peak, True
    except KeyboardInterrupt:
        os.killpg(pid, signal.SIGKILL)
        raise
    finally:
        os.close(exit_file)
