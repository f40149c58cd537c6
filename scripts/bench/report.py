"""Medians, ratios, what is wrong beyond time, and the table of a benchmark."""

import os
import platform
import re
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

_PACKAGES = ("megatron-bridge", "megatron-core", "transformers", "tokenizers", "torch", "pyarrow", "numpy")
_HEADER = ("work", "who", "s", "CPU s", "per s", "private MB", "file MB", "packs", "vs upstream", "vs the first")


def machine() -> str:
    """Return what the benchmark runs on, in a sentence."""
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    model = found[1] if found else platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = ", ".join(f"{name} {one.version}" for name in _PACKAGES for one in distributions(name=name))
    cores = f"{len(os.sched_getaffinity(0))} cores, {model}, {memory:.0f} GiB, Linux {platform.release()}"
    return f"{cores}; Python {platform.python_version()}, {versions}."


def commit_of(tree: Path) -> str:
    """Return a checkout's commit, with `-dirty` after it where files have changed; empty without git."""
    command = ["git", "-C", str(tree), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def findings_of(measurements: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return work -> who -> medians of numbers, and each text as it was found; what has a prefix is work of its own."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for one in measurements:
        same = [other for other in measurements if (other["work"], other["who"]) == (one["work"], one["who"])]
        numbers = {name for name, value in one.items() if type(value) in (int, float)}
        medians = {name: statistics.median(other[name] for other in same if name in other) for name in numbers}
        found.setdefault(one["work"], {}).setdefault(one["who"], {**one, **medians, "num_measured": len(same)})
        for prefix in sorted(name.removesuffix("seconds") for name in numbers if name.endswith("_seconds")):
            own = {name.removeprefix(prefix): value for name, value in medians.items() if name.startswith(prefix)}
            about = {name: one[name] for name in ("role", "variant", "num", "is_finished")} | own
            found.setdefault(f"{one['work']}, {prefix.strip('_')}", {}).setdefault(one["who"], about)
    return found


def complaints_of(findings: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[str]:
    """Return what is wrong: other sequences, other rows in one checkout than in another, more packs than upstream."""
    found = []
    for work, taken in findings.items():
        if len({one["digest"] for one in taken.values() if "digest" in one}) > 1:
            found.append(f"{work}: they gave different sequences")
        ours = [one for one in taken.values() if one["role"] == "bridgepack"]
        if len({one["rows_digest"] for one in ours if "rows_digest" in one}) > 1:
            found.append(f"{work}: bridgepack wrote different rows")
        theirs = [one["num_packs"] for one in taken.values() if one["role"] == "upstream" and "num_packs" in one]
        if theirs and any(one.get("num_packs", 0) > min(theirs) for one in ours):
            found.append(f"{work}: bridgepack made more packs than upstream, {min(theirs):,.0f}")
    return found


def table_of(findings: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """Return a line for each who of each work; ratios above 1 say how many times faster it is.

    Against upstream only where it did as many: of fewer rows, what a start takes is a larger share of each.
    """
    rows = [_HEADER, ("---",) * 2 + ("---:",) * (len(_HEADER) - 2)]
    for work, taken in findings.items():
        done = [one for one in taken.values() if one["is_finished"]]
        ours = [one for one in done if one["role"] == "bridgepack"]
        for who, one in taken.items():
            ratios = ("", "")
            if one["is_finished"] and one["role"] == "bridgepack":
                first = next(_each(other) for other in ours if other["variant"] == one["variant"])
                theirs = [_each(other) for other in done if other["role"] == "upstream" and other["num"] == one["num"]]
                ratios = (_times(min(theirs, default=None), one), _times(first, one))
            rows.append((work, who, *_numbers(one), *ratios))
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def _numbers(one: Mapping[str, Any]) -> tuple[str, ...]:
    if not one["is_finished"]:
        return ("not finished", *[""] * 5)
    scaled = {"peak_private_bytes": 1e6, "num_bytes": 1e6, "num_packs": 1}
    rest = [f"{one[name] / by:,.0f}" if name in one else "" for name, by in scaled.items()]
    return f"{one['seconds']:.4g}", f"{one['cpu_s']:.4g}", f"{1 / _each(one):,.0f}", *rest


def _each(one: Mapping[str, Any]) -> float:
    return float(one["seconds"] / one["num"])


def _times(seconds_each: float | None, one: Mapping[str, Any]) -> str:
    return "" if seconds_each is None else f"{seconds_each / _each(one):.3g}x"
