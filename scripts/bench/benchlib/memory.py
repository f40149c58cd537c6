"""Memory of a process with everything it started, from Linux's /proc."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_FIELD = re.compile(r"^(Rss|Pss|Pss_Anon):\s+(\d+) kB", re.MULTILINE)
_SESSION = 3


class Memory(NamedTuple):
    """Memory of several processes.

    Attributes:
        rss_bytes: sum of each one's resident pages, mapped files included; pages they share count in each.
        pss_bytes: the same with shared pages counted once.
        private_bytes: of these, those that are of no file and cannot be dropped and read again.
    """

    rss_bytes: int = 0
    pss_bytes: int = 0
    private_bytes: int = 0

    def highest(self, other: Memory) -> Memory:
        """Return the larger of each."""
        return Memory(*map(max, self, other))


def session_memory(session: int) -> Memory:
    """Return the memory of the processes of a session now; those that end meanwhile count as none."""
    found = [_process_memory(folder) for folder in Path("/proc").glob("[0-9]*") if _session_of(folder) == session]
    return Memory(*map(sum, zip(Memory(), *found, strict=True)))


def _session_of(folder: Path) -> int | None:
    try:
        after_name = (folder / "stat").read_text().rpartition(")")[2]
    except OSError:
        return None
    return int(after_name.split()[_SESSION])


def _process_memory(folder: Path) -> Memory:
    try:
        fields = dict(_FIELD.findall((folder / "smaps_rollup").read_text()))
    except OSError:
        return Memory()
    return Memory(*(1024 * int(fields.get(name, 0)) for name in ("Rss", "Pss", "Pss_Anon")))
