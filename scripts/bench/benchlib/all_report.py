"""All benchmarks as one Markdown table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchlib.all_rows import HEADER, rows_of
from benchlib.machine import machine_line


def all_report(result: Mapping[str, Any]) -> str:
    """Return the page; `result` is what the JSON file holds."""
    rule = ("---",) * 3 + ("---:",) * (len(HEADER) - 3)
    rows = [row for finding in result["findings"] for row in rows_of(finding)]
    complaints = [f"- {one['work']}: {text}" for one in result["findings"] for text in one["complaints"]]
    lines = [
        "# bridgepack, Megatron-Bridge and peers",
        "",
        machine_line(result["machine"]),
        "",
        f"Medians of {result['settings']['repeats']}, all taking turns, each in a fresh process. The last columns are "
        "the best of upstream, of peers and of the floor divided by bridgepack's: 10 is ten times faster.",
        "",
        "".join(f"| {' | '.join(cells)} |\n" for cells in (HEADER, rule, *rows)),
        *_growth_lines(result["growth"]),
        *(["", "**Wrong:**", "", *complaints] if complaints else []),
    ]
    return "\n".join(lines) + "\n"


def _growth_lines(growth: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for one in growth:
        if one["part"] == "plan" and one["contender"].startswith("bridgepack"):
            yield f"{one['contender']}, {one['work']}: time grows as N^{one['exponent']:.2f} to {one['to']:,}.  "
