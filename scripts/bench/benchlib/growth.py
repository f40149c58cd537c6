"""How time grows with size."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any


def growth_of(findings: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the exponent e of time = size ** e between the sizes of the same work, for each contender."""
    series: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
    for finding in findings:
        about = finding["work"].partition(" ")[2]
        for name, taken in finding["contenders"].items():
            if "num" in taken:
                series.setdefault((finding["part"], about, name), []).append((taken["num"], taken["seconds"]))
    grown = []
    for (part, about, name), points in series.items():
        for (size, seconds), (larger, longer) in itertools.pairwise(sorted(points)):
            if larger == size:
                continue
            exponent = math.log(longer / seconds) / math.log(larger / size)
            grown.append(
                {"part": part, "work": about, "contender": name, "from": size, "to": larger, "exponent": exponent}
            )
    return grown
