"""How long the phases of a measured process took, written by itself and read by the benchmark."""

from __future__ import annotations

import json
import time
from pathlib import Path


class PhaseClock:
    """Notes when phases end; the first begins with the clock."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self._seconds: dict[str, float] = {}

    def end(self, phase: str) -> None:
        """Note the seconds since the previous phase ended."""
        now = time.perf_counter()
        self._seconds[phase] = now - self._last
        self._last = now

    def write(self, path: Path) -> None:
        """Write phase -> seconds as JSON."""
        path.write_text(json.dumps(self._seconds), encoding="utf-8")
