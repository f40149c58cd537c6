"""Medians of measurements, and how many times less than upstream's best bridgepack takes."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchlib.variants import BRIDGEPACK, UPSTREAM

#: What is measured of each build; `build_s` is loading the tokenizer and everything after it.
METRICS = ("wall_s", "imports_s", "build_s", "cpu_s", "peak_memory_bytes", "peak_rss_bytes")
#: What is compared.
COMPARED = ("wall_s", "build_s", "cpu_s", "peak_memory_bytes")

Medians = dict[str, dict[str, float]]


def medians_of(measurements: Sequence[Mapping[str, Any]]) -> Medians:
    """Return variant -> metric -> median over the measurements that finished."""
    names = dict.fromkeys(found["variant"] for found in measurements)
    medians = {}
    for name in names:
        finished = [found for found in measurements if found["variant"] == name and found["is_finished"]]
        if finished:
            medians[name] = {metric: statistics.median(found[metric] for found in finished) for metric in METRICS}
    return medians


def ratios_of(medians: Medians) -> Medians:
    """Return bridgepack variant -> metric -> upstream's best divided by it: 10.0 is ten times faster or smaller.

    The best is taken for each metric by itself; empty where no variant of upstream finished.
    """
    upstream = [values for name, values in medians.items() if name.startswith(UPSTREAM)]
    if not upstream:
        return {}
    best = {metric: min(values[metric] for values in upstream) for metric in COMPARED}
    return {
        name: {metric: best[metric] / values[metric] for metric in COMPARED}
        for name, values in medians.items()
        if name.startswith(BRIDGEPACK)
    }
