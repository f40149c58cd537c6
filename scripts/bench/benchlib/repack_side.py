"""Measures `bridgepack repack`, and `bridgepack build` of the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchlib.bridgepack_side import recipe
from benchlib.build_side import run
from benchlib.built import describe_built
from benchlib.raw_side import fresh
from benchlib.settings import BEST_FIT_DECREASING
from benchlib.side import timed

_CHANGES = ("packing.packed_sequence_size=32768", "packing.pad_seq_to_mult=8", "parallelism.context_parallel_size=4")


def build(data: str, tokenizer: str, output: str, num_workers: int, engine: str) -> dict[str, Any]:
    """Return what building for the other sizes takes, with nothing in the token store."""
    with fresh(output) as folder:
        found: dict[str, Any] = {}
        path = _recipe(folder, data, tokenizer, engine)
        changes = [part for change in _CHANGES for part in ("--set", change)]
        arguments = ["build", str(path), "--output", str(folder / "other"), "--workers", str(num_workers), *changes]
        with timed(found):
            run(arguments)
        return {**found, **describe_built(folder / "other" / "training")}


def repack(data: str, tokenizer: str, output: str, num_workers: int) -> dict[str, Any]:
    """Return what `repack` takes of an artifact whose tokens are in the store."""
    with fresh(output) as folder:
        found: dict[str, Any] = {}
        path = _recipe(folder, data, tokenizer)
        run(["build", str(path), "--output", str(folder / "artifact"), "--workers", str(num_workers)])
        changes = [part for change in _CHANGES for part in ("--set", change)]
        arguments = ["repack", str(folder / "artifact"), "--output", str(folder / "other"), *changes]
        with timed(found):
            run(arguments)
        return {**found, **describe_built(folder / "other" / "training")}


def _recipe(folder: Path, data: str, tokenizer: str, engine: str = "auto") -> Path:
    path = folder / "recipe.yaml"
    values = recipe(data, tokenizer, BEST_FIT_DECREASING)
    values["tokenizer"]["engine"] = engine
    path.write_text(json.dumps(values), encoding="utf-8")
    return path
