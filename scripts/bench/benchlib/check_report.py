"""The benchmark of checks as a Markdown page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_HEADER = (
    "| rows | tokens | GB | processes | read s | check s | rows/s | Mtokens/s | read CPU s | check CPU s | read MB "
    "| check MB | speed | CPU |"
)
_NOTES = (
    "each in a fresh process, the two taking turns, the files in the page cache. Reading is decoding the three columns "
    "of all shards with the same reader and hashing the files, in as many processes. Seconds are without Python's "
    "imports, with the start of worker processes; CPU seconds are with both. Memory is the peak of all processes, "
    "shared pages once. The last two columns are reading divided by checking: the speed of a check."
)


def check_report(result: Mapping[str, Any]) -> str:
    """Return the page; `result` is what the JSON file holds."""
    settings, machine = result["settings"], result["machine"]
    loads = ", ".join(f"{load:.1f}" for load in machine["load_averages"])
    memory = machine["memory_bytes"] / 2**30
    lines = [
        "# bridgepack check against reading",
        "",
        f"{machine['num_cores']} cores, {machine['cpu_model']}, {memory:.0f} GiB, Linux {machine['kernel']}; load "
        f"average before and after: {loads}. Commit {machine['commit']}; pyarrow {machine['versions'].get('pyarrow')}.",
        "",
        f"Rows of {settings['packed_sequence_size']:,} runtime tokens; a hundredth as many to validate. Medians of "
        f"{settings['repeats']}, {_NOTES}",
        "",
        f"{_HEADER}\n|{' ---: |' * (_HEADER.count('|') - 1)}",
        *(_line(found) for found in result["sizes"]),
    ]
    return "\n".join(lines) + "\n"


def _line(found: Mapping[str, Any]) -> str:
    read, check = found["medians"]["read"], found["medians"]["check"]
    cells = (
        f"{found['num_rows']:,}",
        f"{found['num_tokens']:,}",
        f"{found['num_bytes'] / 1e9:.2f}",
        str(found["num_workers"]),
        f"{read['seconds']:.2f}",
        f"{check['seconds']:.2f}",
        f"{found['num_rows'] / check['seconds']:,.0f}",
        f"{found['num_tokens'] / check['seconds'] / 1e6:,.0f}",
        f"{read['cpu_s']:.1f}",
        f"{check['cpu_s']:.1f}",
        f"{read['peak_memory_bytes'] / 1e6:,.0f}",
        f"{check['peak_memory_bytes'] / 1e6:,.0f}",
        f"{read['seconds'] / check['seconds']:.2f}",
        f"{read['cpu_s'] / check['cpu_s']:.2f}",
    )
    return f"| {' | '.join(cells)} |"
