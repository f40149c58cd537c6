"""Waiting for what other processes do, and which of them run; each may end while it is looked at."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path


def wait_until(
    is_so: Callable[[], object],
    what: str = "it is so",
    *,
    limit_s: float = 180,
    process: subprocess.Popen[str] | None = None,
) -> None:
    """Return once it is so; a process that has to run until then is told of when it ended."""
    deadline = time.monotonic() + limit_s
    while not is_so():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"waited {limit_s:.0f} s until {what}"
        time.sleep(0.01)


def is_running(pid: int | str) -> bool:
    """Say whether a process does something; one that has ended may wait for its parent to notice."""
    return _state(Path("/proc", str(pid), "stat"))[0] not in "ZX"


def num_running(*, group: int) -> int:
    """Return how many processes of a group do something."""
    states = [_state(stat) for stat in Path("/proc").glob("[0-9]*/stat")]
    return sum(state not in "ZX" and of_group == group for state, of_group in states)


def commands_with(variable: str) -> list[str]:
    """Return the command lines of the processes that have `NAME=value` in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if variable.encode() in path.read_bytes().split(b"\0"):
                found.append(path.with_name("cmdline").read_text())
        except OSError:
            continue
    return found


def _state(stat: Path) -> tuple[str, int]:
    """Return the state and the group of a process; X and 0 where there is none any more."""
    try:
        state, _, group = stat.read_text().rpartition(")")[2].split()[:3]
    except OSError:
        return "X", 0
    return state, int(group)
