"""Runs a command as a fresh process and measures it together with every process it starts."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchlib import BenchmarkError
from benchlib.watching import watch


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """What a process took with all it started.

    Attributes:
        wall_s: from start to exit; cpu_s: of all processes.
        peak_memory_bytes: pages that processes share count once; exact for a process without children.
        peak_rss_bytes: pages that processes share count in each.
        peak_private_bytes: pages of no file, as they are looked at now and then.
        is_finished: it ended by itself.
    """

    wall_s: float
    cpu_s: float
    peak_memory_bytes: int
    peak_rss_bytes: int
    peak_private_bytes: int
    is_finished: bool


def measure(command: Sequence[str], *, log: Path, environment: Mapping[str, str], limit_s: float) -> Usage:
    """Run a command to its end, or end it and all it started after `limit_s`, and return what it took.

    Raises:
        BenchmarkError: when it fails, with the end of its log.
    """
    with log.open("wb") as output:
        start = time.perf_counter()
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
        peak, is_finished = watch(process.pid, limit_s=limit_s)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if is_finished and process.returncode:
        shown = log.read_text()[-2000:]
        raise BenchmarkError(f"{' '.join(command)} failed ({process.returncode}):\n{shown}")
    return Usage(
        wall_s=wall_s,
        cpu_s=usage.ru_utime + usage.ru_stime,
        peak_memory_bytes=max(peak.pss_bytes, 1024 * usage.ru_maxrss),
        peak_rss_bytes=max(peak.rss_bytes, 1024 * usage.ru_maxrss),
        peak_private_bytes=peak.private_bytes,
        is_finished=is_finished,
    )
