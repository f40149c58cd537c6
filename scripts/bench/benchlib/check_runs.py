"""Reads and checks an artifact in turns, each in a fresh process."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Any

from benchlib.check_side import CHECK, READ
from benchlib.measuring import measure

_METRICS = ("seconds", "cpu_s", "peak_memory_bytes")
_tell = partial(print, file=sys.stderr, flush=True)


def compare(folder: Path, num_workers: int, options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Return medians of reading and checking an artifact, and what was read, as plain values."""
    runs: dict[str, list[dict[str, Any]]] = {READ: [], CHECK: []}
    _run(READ, folder, num_workers, options, scratch)
    for side in [side for _ in range(options.repeats) for side in (READ, CHECK)]:
        runs[side].append(_run(side, folder, num_workers, options, scratch))
        _tell(f"{num_workers} processes, {side}: {runs[side][-1]['seconds']:.2f} s")
    medians = {side: {name: statistics.median(run[name] for run in runs[side]) for name in _METRICS} for side in runs}
    counts = {name: runs[CHECK][0][name] for name in ("num_rows", "num_tokens", "codes")}
    return {"num_workers": num_workers, **counts, "medians": medians, "runs": runs}


def _run(side: str, folder: Path, num_workers: int, options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    result = scratch / "result.json"
    arguments = [side, str(folder), str(options.packed_sequence_size), str(num_workers), str(result)]
    command = [sys.executable, "-m", "benchlib.check_side", *arguments]
    usage = measure(command, log=scratch / "log.txt", environment=os.environ, limit_s=options.limit)
    return {**json.loads(result.read_text()), "cpu_s": usage.cpu_s, "peak_memory_bytes": usage.peak_memory_bytes}
