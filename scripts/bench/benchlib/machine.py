"""What a benchmark ran on."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

_PACKAGES = ("bridgepack", "megatron-bridge", "megatron-core", "transformers", "tokenizers", "torch", "pyarrow")


def describe_machine() -> dict[str, Any]:
    """Return cores, memory, CPU model, commit of bridgepack and versions, as plain values."""
    return {
        "num_cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "cpu_model": _cpu_model(),
        "kernel": platform.release(),
        "commit": _commit(),
        "versions": {"python": platform.python_version()} | _versions(),
    }


def machine_line(machine: Mapping[str, Any]) -> str:
    """Return what `describe_machine` found, in a sentence for people."""
    versions = ", ".join(f"{name} {value}" for name, value in machine["versions"].items())
    loads = ", ".join(f"{load:.1f}" for load in machine["load_averages"])
    memory = machine["memory_bytes"] / 2**30
    cores = f"{machine['num_cores']} cores, {machine['cpu_model']}, {memory:.0f} GiB, Linux {machine['kernel']}"
    return f"{cores}; load average before, between and after: {loads}. Commit {machine['commit']}; {versions}."


def load_average() -> float:
    """Return the number of runnable processes, averaged over the last minute."""
    return os.getloadavg()[0]


def _cpu_model() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.processor() or platform.machine()


def _commit() -> str | None:
    """Return the commit of the checkout, with `-dirty` after it where files have changed; None without git."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _versions() -> dict[str, str]:
    return {name: found.version for name in _PACKAGES for found in distributions(name=name)}
