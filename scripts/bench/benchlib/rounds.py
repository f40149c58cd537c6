"""Lets contenders work in turns, round after round, each time in a fresh process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchlib import BenchmarkError
from benchlib.machine import load_average
from benchlib.measuring import measure
from benchlib.works import Contender, Work

Measurement = dict[str, Any]


def run_rounds(
    works: Sequence[Work], *, num_rounds: int, limit_s: float, scratch: Path, tell: Callable[[str], None]
) -> list[Measurement]:
    """Return all measurements as plain values; one that did not end in time is not tried again.

    A round is every contender of every work once; every other round goes backwards, so that a slow minute of the
    machine falls on all of them.
    """
    found: list[Measurement] = []
    given_up: set[tuple[str, str]] = set()
    turns = [(work, contender) for work in works for contender in work.contenders]
    for number in range(num_rounds):
        for work, contender in turns if number % 2 == 0 else reversed(turns):
            key = (work.name, contender.name)
            if key in given_up or number >= (contender.most_repeats or num_rounds):
                continue
            taken = run_once(contender, limit_s=limit_s, scratch=scratch)
            found.append({"part": work.part, "work": work.name, "contender": contender.name, "round": number, **taken})
            times = ", ".join(f"{name} {value:.3f}" for name, value in taken.items() if name.endswith("seconds"))
            tell(f"{work.part}: {work.name}: {contender.name}: {times if taken['is_finished'] else 'not finished'}")
            if not taken["is_finished"]:
                given_up.add(key)
    return found


def run_once(contender: Contender, *, limit_s: float, scratch: Path) -> Measurement:
    """Return what a contender took, with the memory of its process and all it started."""
    result, log = scratch / "result.json", scratch / "log.txt"
    result.unlink(missing_ok=True)
    arguments = [contender.function, json.dumps(dict(contender.arguments)), str(result)]
    load = load_average()
    command = [sys.executable, "-m", "benchlib.side", *arguments]
    usage = measure(command, log=log, environment=os.environ, limit_s=limit_s)
    if usage.is_finished and not result.is_file():
        raise BenchmarkError(f"{contender.name} gave no result:\n{log.read_text()[-2000:]}")
    memory = {"peak_memory_bytes": usage.peak_memory_bytes, "peak_private_bytes": usage.peak_private_bytes}
    taken = json.loads(result.read_text()) if result.is_file() else {}
    return {**taken, **memory, "process_s": usage.wall_s, "is_finished": usage.is_finished, "load_average": load}
