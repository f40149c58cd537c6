"""CPU seconds of a process and all it started."""

from __future__ import annotations

import os
import resource
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
#: Fields of /proc/PID/stat after the name: the session; user and system ticks, its own and of those it waited for.
_SESSION, _FIRST_TICKS, _STOP_TICKS = 3, 11, 15


def cpu_seconds() -> float:
    """Return what this process, those that it waited for, and all others of its session have taken so far."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    if os.getsid(0) != os.getpid():
        return own
    return own + sum(map(_others, Path("/proc").glob("[0-9]*"))) / _TICKS


def _others(folder: Path) -> int:
    """Return the ticks of another process of this session, 0 of any other."""
    try:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    if int(fields[_SESSION]) != os.getpid() or folder.name == str(os.getpid()):
        return 0
    return sum(map(int, fields[_FIRST_TICKS:_STOP_TICKS]))
