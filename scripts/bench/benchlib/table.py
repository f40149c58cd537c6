"""One Markdown table of all sizes and builds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchlib.summary import COMPARED

_HEADER = (
    "rows",
    "build",
    "process s",
    "rows/s",
    "build s",
    "rows/s",
    "CPU s",
    "peak MB",
    "packs",
    "process",
    "build",
    "CPU",
    "memory",
)


def markdown_table(sizes: Sequence[Mapping[str, Any]]) -> str:
    """Return the table; the last four columns are upstream's best divided by bridgepack's."""
    lines = [_HEADER, ("---",) * 2 + ("---:",) * (len(_HEADER) - 2)]
    for size in sizes:
        lines += [_line(size, name) for name in dict.fromkeys(found["variant"] for found in size["measurements"])]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _line(size: Mapping[str, Any], name: str) -> tuple[str, ...]:
    num_rows, values = size["num_rows"], size["medians"].get(name)
    if values is None:
        return (f"{num_rows:,}", name, "not finished", *[""] * (len(_HEADER) - 3))
    ratios = size["ratios"].get(name)
    return (
        f"{num_rows:,}",
        name,
        f"{values['wall_s']:.1f}",
        f"{num_rows / values['wall_s']:,.0f}",
        f"{values['build_s']:.1f}",
        f"{num_rows / values['build_s']:,.0f}",
        f"{values['cpu_s']:.1f}",
        f"{values['peak_memory_bytes'] / 1e6:,.0f}",
        f"{size['outputs'][name]['num_packs']:,}",
        *(f"{ratios[metric]:.1f}x" if ratios else "" for metric in COMPARED),
    )
