"""Measures the parts that were chosen, all in turns."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchlib.findings import findings_of
from benchlib.growth import growth_of
from benchlib.inputs import prepare_inputs
from benchlib.machine import describe_machine, load_average
from benchlib.part_build import build_works
from benchlib.part_plan import plan_works
from benchlib.part_read import read_works
from benchlib.part_repack import repack_works
from benchlib.part_tokenise import tokenise_works
from benchlib.part_write import write_works
from benchlib.rounds import run_rounds
from benchlib.works import Work

_PARTS = {
    "plan": plan_works,
    "write": write_works,
    "read": read_works,
    "tokenise": tokenise_works,
    "build": build_works,
    "repack": repack_works,
}
_tell = partial(print, file=sys.stderr, flush=True)


def works_of(options: argparse.Namespace, scratch: Path) -> Iterator[Work]:
    """Yield the work of the parts that were chosen; its inputs are there."""
    prepare_inputs(options, scratch)
    for part in options.parts:
        yield from _PARTS[part](options, scratch)


def run(options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Return the machine, the settings, all measurements and what was found, as plain values."""
    machine = {**describe_machine(), "load_averages": [load_average()]}
    works = list(works_of(options, scratch))
    measurements = run_rounds(works, num_rounds=options.repeats, limit_s=options.limit, scratch=scratch, tell=_tell)
    machine["load_averages"].append(load_average())
    findings = findings_of(works, measurements)
    settings = {name: value for name, value in vars(options).items() if not isinstance(value, Path)}
    found = {"findings": findings, "growth": growth_of(findings), "measurements": measurements}
    return {"machine": machine, "settings": settings, **found}
