"""Starting processes of the tests, waiting for what others do, and which of them run; each may end meanwhile."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

#: Variables of a process that trains alone.
ONE_RANK = {
    **{"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"},
    **{"TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1"},
}
_PROJECT = Path(__file__).parents[2]


def started(
    *command: object, folder: Path, variables: dict[str, str], has_own_group: bool = False
) -> subprocess.Popen[str]:
    """Start a command in a folder, in a process group of its own as a terminal does, or in this one."""
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    words = [*map(str, command)]
    return subprocess.Popen(words, cwd=folder, env=variables, start_new_session=has_own_group, **pipes)


def run_module(
    module: str, *arguments: object, limit_s: float = 300, first: Iterable[Path] = (), **variables: str
) -> None:
    """Run a module of the tests in a process of its own, with some folders first on its path; it has to succeed."""
    paths = [str(Path(path).resolve()) for path in (*first, _PROJECT, *filter(None, sys.path))]
    with tempfile.TemporaryFile("w+") as log:  # not a pipe: what the process leaves behind would keep it open
        finished = subprocess.run(
            [sys.executable, "-m", module, *map(str, arguments)],
            cwd=_PROJECT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **variables},
            stdout=log,
            stderr=log,
            timeout=limit_s,
            check=False,
        )
        log.seek(0)
        assert finished.returncode == 0, log.read()[-5000:]


def wait_until(
    is_so: Callable[[], object],
    what: str | Callable[[], str] = "it is so",
    *,
    limit_s: float = 180,
    process: subprocess.Popen[str] | None = None,
) -> None:
    """Return once it is so; a process that has to run until then is told of when it ended.

    Asking takes a fifth of a core at most: what is waited for shares the machine.
    """
    deadline = time.monotonic() + limit_s
    asked_s = time.monotonic()
    while not is_so():
        assert process is None or process.poll() is None, process.communicate()
        if time.monotonic() >= deadline:
            raise AssertionError(f"waited {limit_s:.0f} s until {what if isinstance(what, str) else what()}")
        time.sleep(max(0.01, 4 * (time.monotonic() - asked_s)))
        asked_s = time.monotonic()


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
