"""Medians of measurements, and how many times less bridgepack takes than each role's best."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchlib.complaints import complaints_of
from benchlib.works import OURS, Metric, Work

Finding = dict[str, Any]


def findings_of(works: Sequence[Work], measurements: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Return what was found by each metric of each work, as plain values."""
    return [_finding(work, metric, measurements) for work in works for metric in work.metrics]


def _finding(work: Work, metric: Metric, measurements: Sequence[Mapping[str, Any]]) -> Finding:
    taken: dict[str, dict[str, Any]] = {}
    for one in work.contenders:
        key = (work.name, one.name, True)
        finished = [found for found in measurements if (found["work"], found["contender"], found["is_finished"]) == key]
        medians = _medians(finished)
        asked = dict(one.asked or metric.asked) if one.role == OURS else {}
        taken[one.name] = {**medians, "role": one.role, "num_measured": len(finished), "asked": asked}
        if finished:
            main = {name: medians[f"{metric.prefix}{name}"] for name in ("seconds", "cpu_s")}
            taken[one.name] |= {**main, "num": medians.get(f"{metric.prefix}num", work.num_items)}
    about = {"part": work.part, "work": work.name, "unit": work.unit, "label": metric.label}
    ours = {name: one for name, one in taken.items() if one["role"] == OURS}
    return {
        **about,
        "compared": metric.compared,
        "contenders": taken,
        "ratios": {name: _ratios(one, taken, metric.compared) for name, one in ours.items()},
        "cpu_ratios": {name: _ratios(one, taken, "cpu_s") for name, one in ours.items()},
        "complaints": complaints_of(taken),
    }


def _medians(finished: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the median of each number, and each text as it was first found."""
    first = finished[0] if finished else {}
    numbers = [name for name, value in first.items() if type(value) in (int, float)]
    return {**first, **{name: statistics.median(one[name] for one in finished) for name in numbers}}


def _ratios(ours: Mapping[str, Any], taken: Mapping[str, Mapping[str, Any]], compared: str) -> dict[str, float]:
    """Return role -> its best divided by ours, for each thing that was done: 10.0 is ten times faster."""
    found: dict[str, list[float]] = {}
    for one in taken.values():
        if one["role"] != OURS and "num" in one:
            found.setdefault(one["role"], []).append(one[compared] / one["num"])
    return {role: min(values) * ours["num"] / ours[compared] for role, values in found.items() if ours.get(compared)}
