"""The table of all benchmarks: a line for each contender of each work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchlib.works import FLOOR, PEER, UPSTREAM

HEADER = (
    "part", "work", "who", "s", "CPU s", "per s", "per CPU s", "private MB", "file MB", "packs",
    "vs upstream", "vs best peer", "vs floor", "CPU vs upstream", "asked",
)  # fmt: skip
_RATIOS = (UPSTREAM, PEER, FLOOR, "cpu")


def rows_of(finding: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for name, taken in finding["contenders"].items():
        ratios = {**finding["ratios"].get(name, {}), "cpu": finding["cpu_ratios"].get(name, {}).get(UPSTREAM)}
        asked = ", ".join(f"{role} {least:.3g}" for role, least in taken["asked"].items())
        work = ", ".join(filter(None, (finding["work"], finding["label"])))
        yield (finding["part"], work, name, *_numbers(finding["unit"], taken), *_ratio_cells(ratios), asked)


def _numbers(unit: str, taken: Mapping[str, Any]) -> Iterator[str]:
    if "num" not in taken:
        yield from ("not finished", *[""] * 6)
        return
    yield f"{taken['seconds']:.4g}"
    yield f"{taken['cpu_s']:.4g}"
    yield from (f"{taken['num'] / taken[name]:,.0f} {unit}" if taken[name] else "" for name in ("seconds", "cpu_s"))
    yield f"{taken['peak_private_bytes'] / 1e6:,.0f}"
    yield f"{taken['num_bytes'] / 1e6:,.1f}" if "num_bytes" in taken else ""
    yield f"{taken['num_packs']:,}" if "num_packs" in taken else ""


def _ratio_cells(ratios: Mapping[str, float | None]) -> Iterator[str]:
    yield from (f"{ratios[name]:.3g}x" if ratios.get(name) else "" for name in _RATIOS)
