"""How long the phases of a measured process took, written by itself and read by the benchmark."""

from __future__ import annotations

import json
import time
from pathlib import Path

from benchlib.cpu import cpu_seconds


class PhaseClock:
    """Notes when phases end; the first begins with the clock."""

    def __init__(self) -> None:
        self._last, self._last_cpu = time.perf_counter(), cpu_seconds()
        self._seconds: dict[str, float] = {}

    def end(self, phase: str) -> None:
        """Note the seconds, and the CPU seconds of this process and its children, since the previous phase ended."""
        now, cpu = time.perf_counter(), cpu_seconds()
        self._seconds |= {phase: now - self._last, f"{phase}_cpu": cpu - self._last_cpu}
        self._last, self._last_cpu = now, cpu

    def write(self, path: Path) -> None:
        """Write phase -> seconds as JSON."""
        path.write_text(json.dumps(self._seconds), encoding="utf-8")
