"""Finds the processes that tests of a run started and that outlive it, with the test that started each."""

import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import is_running

#: Inherited by everything that a run starts.
VARIABLE = "BRIDGEPACK_TEST_RUN"
#: What ends with the process that started it: multiprocessing's own.
_ENDS_WITH_PARENT = (b"multiprocessing.forkserver", b"multiprocessing.resource_tracker")


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftoverProcess:
    """A process that no test ended."""

    pid: int
    command: str
    test: str

    def __str__(self) -> str:
        return f"process {self.pid} of {self.test}: {self.command[:200]}"


def mark_run() -> str:
    """Give this process and all that it starts a new mark, and return it."""
    os.environ[VARIABLE] = uuid.uuid4().hex
    return os.environ[VARIABLE]


def leftover_processes(mark: str, *, limit_s: float) -> list[LeftoverProcess]:
    """Return the processes of a run that still do something after a while, but for this one."""
    deadline = time.monotonic() + limit_s
    while (leftovers := _with_mark(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return leftovers


def _with_mark(mark: str) -> list[LeftoverProcess]:
    leftovers = []
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        try:
            variables = _variables(folder)
            command = (folder / "cmdline").read_bytes()
        except OSError:  # it has ended, or is another user's
            continue
        is_ours = pid == os.getpid() or any(name in command for name in _ENDS_WITH_PARENT)
        if variables.get(VARIABLE) == mark and not is_ours and is_running(pid):
            words = command.replace(b"\0", b" ").decode(errors="replace")
            test = variables.get("PYTEST_CURRENT_TEST", "no test")
            leftovers.append(LeftoverProcess(pid=pid, command=words.strip(), test=test))
    return leftovers


def _variables(folder: Path) -> Mapping[str, str]:
    words = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word)
