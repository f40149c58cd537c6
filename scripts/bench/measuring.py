"""Runs a command as a fresh process and measures it with all it starts: time, CPU, memory; from Linux's /proc."""

import ctypes
import os
import re
import resource
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_MEMORY = re.compile(r"^(Pss|Pss_Anon):\s+(\d+) kB", re.MULTILINE)
#: Fields of /proc/PID/stat after the name: the session; user and system ticks, its own and of those it waited for.
_SESSION, _TICKS = 3, slice(11, 15)
#: Seconds between two looks at memory, and the share of the time that looking may take.
_LOOK_S, _LOOK_FRACTION = 0.1, 0.02
#: Of linux/prctl.h: who outlives the process that started it becomes this one's child, and stays in /proc when it ends.
_PR_SET_CHILD_SUBREAPER = 36


@contextmanager
def timed(found: dict[str, Any], prefix: str = "") -> Iterator[None]:
    """Put the seconds of a block, and the CPU seconds of this process and all it started, into `found`."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # a command's fork server ends after the command
    cpu_s, begin = _cpu_seconds(), time.perf_counter()
    yield
    found[f"{prefix}seconds"] = time.perf_counter() - begin
    found[f"{prefix}cpu_s"] = _cpu_seconds() - cpu_s


def measure(command: Sequence[str], *, log: Path, environment: Mapping[str, str], limit_s: float) -> dict[str, Any]:
    """Run a command to its end, or end it and all it started after `limit_s`, and return its memory.

    `peak_memory_bytes` counts pages that processes share once; `peak_private_bytes` counts pages of no file.

    Raises:
        SystemExit: when it fails, with the end of its log.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
        memory, private, is_finished = _watch(process.pid, limit_s)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if is_finished and process.returncode:
        raise SystemExit(f"{' '.join(command)} failed ({process.returncode}):\n{log.read_text()[-2000:]}")
    peak = max(memory, 1024 * usage.ru_maxrss)
    return {"is_finished": is_finished, "peak_memory_bytes": peak, "peak_private_bytes": private}


def _watch(pid: int, limit_s: float) -> tuple[int, int, bool]:
    """Return the highest memory of a process's session, shared and private, and whether it ended by itself."""
    memory = private = 0
    deadline, pause_s = time.perf_counter() + limit_s, _LOOK_S
    exit_file = os.pidfd_open(pid)
    exit_poll = select.poll()
    exit_poll.register(exit_file, select.POLLIN)
    try:
        while not exit_poll.poll(1000 * pause_s):
            begin = time.perf_counter()
            found = [_process_memory(folder) for folder in _session(pid)]
            memory, private = max(memory, sum(one for one, _ in found)), max(private, sum(one for _, one in found))
            pause_s = max(_LOOK_S, (time.perf_counter() - begin) / _LOOK_FRACTION)
            if time.perf_counter() > deadline:
                os.killpg(pid, signal.SIGKILL)
                return memory, private, False
        return memory, private, True
    except KeyboardInterrupt:
        os.killpg(pid, signal.SIGKILL)
        raise
    finally:
        os.close(exit_file)


def _session(session: int) -> Iterator[Path]:
    for folder in Path("/proc").glob("[0-9]*"):
        if (fields := _stat(folder)) and int(fields[_SESSION]) == session:
            yield folder


def _stat(folder: Path) -> list[str]:
    try:
        return (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return []


def _process_memory(folder: Path) -> tuple[int, int]:
    try:
        fields = dict(_MEMORY.findall((folder / "smaps_rollup").read_text()))
    except OSError:  # it has ended
        return 0, 0
    return 1024 * int(fields.get("Pss", 0)), 1024 * int(fields.get("Pss_Anon", 0))


def _cpu_seconds() -> float:
    """Return what this process, those that it waited for, and the others of its session have taken so far."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    if os.getsid(0) != os.getpid():
        return own
    others = [_stat(folder) for folder in _session(os.getpid()) if folder.name != str(os.getpid())]
    return own + sum(int(ticks) for fields in others for ticks in fields[_TICKS]) / os.sysconf("SC_CLK_TCK")
