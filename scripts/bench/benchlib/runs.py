"""Builds each variant in a fresh process and folder, repetition after repetition."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchlib.machine import load_average
from benchlib.measuring import measure
from benchlib.variants import Variant


@dataclass(frozen=True, kw_only=True, slots=True)
class Inputs:
    """What every build of one size is given, and the seconds after which it is ended."""

    data: Path
    tokenizer: Path
    limit_s: float


def interleaved(variants: Sequence[Variant], num_repetitions: int) -> Iterator[tuple[int, Variant]]:
    """Yield (repetition, variant), every variant once per repetition; every other repetition goes backwards."""
    for repetition in range(num_repetitions):
        for variant in variants if repetition % 2 == 0 else reversed(variants):
            yield repetition, variant


def run_build(variant: Variant, inputs: Inputs, folder: Path) -> dict[str, Any]:
    """Build into a fresh folder and return what it took, as plain values in seconds and bytes.

    The data is a link in that folder, because upstream writes a line index beside it and would use it again.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    data = folder / "training.jsonl"
    data.symlink_to(inputs.data.resolve())
    load = load_average()
    command = variant.command(folder, data, inputs.tokenizer)
    usage = measure(command, log=folder / "log.txt", environment=_environment(folder), limit_s=inputs.limit_s)
    phases = folder / "phases.json"
    seconds = json.loads(phases.read_text()) if phases.is_file() else {}
    return {**asdict(usage), **{f"{phase}_s": value for phase, value in seconds.items()}, "load_average": load}


def _environment(folder: Path) -> dict[str, str]:
    """Return the environment of a build: no network, no GPU, and each side's own default of tokenizer threads."""
    inherited = {name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"}
    fixed = {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TORCHDYNAMO_DISABLE": "1"}
    return {**inherited, **fixed, "MEGATRON_CONFIG_LOCK_DIR": str(folder / "locks")}
