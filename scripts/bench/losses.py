#!/usr/bin/env python3
"""Prints how much longer a step takes with losses by source and by row, in the real finetune() on CPU.

Two sources, a tiny dense model; runs with and without losses take turns, every other round backwards. A run's time is
the median of its steps, but for the first ten; ratios are those of the medians of the runs. That of CPU seconds is of
whole runs, with their start, and other work on the machine disturbs it less. A real model computes a thousand times
more in a step, and what follows the losses costs the same.
"""

import argparse
import dataclasses
import json
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from bridgepack.api import build  # noqa: E402
from bridgepack.canaries.cpu import ENVIRONMENT  # noqa: E402
from bridgepack.config.write import recipe_to_yaml  # noqa: E402
from tests.support.guarded_runs import RunRequest  # noqa: E402
from tests.support.processes import run_module  # noqa: E402
from tests.support.small_builds import small_recipe, tokenized_row, write_conversations, write_json_lines  # noqa: E402
from tests.support.tiny_recipes import ON_CPU, VOCAB_SIZE, write_weights  # noqa: E402

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "without": {"losses.by_source": False},
    "by_source": {"losses.by_source": True},
    "by_row": {"losses.by_source": True, "losses.by_row": True},
}
NUM_WARM = 10
_STEP = re.compile(r"elapsed time per iteration \(ms\): ([\d.]+)")


def write_inputs(folder: Path, size: int) -> None:
    """Write rows of two sources, a tokenizer, a model, and packs of a size."""
    write_conversations(folder, limit=20, vocab_size=VOCAB_SIZE)
    write_weights(folder / "model", num_layers=4)
    rng = np.random.default_rng(1)
    for name in ("a", "b"):
        lengths = rng.integers(20, size // 4, 40 * 16)
        rows = (tokenized_row(*rng.integers(10, 500, length).tolist(), num_prompt=4) for length in lengths)
        write_json_lines(folder / f"{name}.jsonl", list(rows))
    build(recipe_of(folder, size, 1), output=folder / "packs")


def recipe_of(folder: Path, size: int, num_steps: int) -> Any:
    """Return the recipe of a run on CPU, which says each step's time."""
    sections: dict[str, Any] = {
        "data": {"train": [{"path": str(folder / f"{name}.jsonl"), "name": name} for name in ("a", "b")]},
        "packing": {"packed_sequence_size": size},
        "preprocessing": {"kind": "tokenized"},
        "batch": {"global_batch_size": 4},
        "model": {"name": str(folder / "model")},
        "schedule": {"train_iters": num_steps, "eval_iters": 0},
        "checkpoint": {"pretrained": str(folder / "model")},
        "logging": {"log_interval": 1},
        "losses": {"every_steps": 10},
        "guard": {"enabled": False},
        "bridge_overrides": {
            **ON_CPU,
            "checkpoint": {"save": None, "load": None},
            "dataset": {"num_workers": 0, "persistent_workers": False},
        },
        "ignore": {"BP984": "timed on CPU", "BP916": "timed on CPU"},
    }
    return small_recipe("", folder / "tokenizer", **sections)


def request_of(folder: Path, variant: str, run: int, recipe: Any) -> RunRequest:
    """Return one run of a variant."""
    path, place = folder / f"{variant}.yaml", folder / "runs" / f"{variant}-{run}"
    path.write_text(recipe_to_yaml(recipe.override(dict(VARIANTS[variant]))), encoding="utf-8")
    words = ("--recipe", str(path), "--run-folder", str(place), "--artifact", str(folder / "packs"))
    return RunRequest(world_size=1, arguments=words, log=f"{place}-log", timeout_s=600.0)


def main() -> None:
    """Train in turns, and print a line for each variant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1024, metavar="TOKENS", help="of a pack (default: 1024)")
    parser.add_argument("--steps", type=int, default=60, metavar="N", help="of a run (default: 60)")
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="runs of each variant (default: 7)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        write_inputs(folder, options.size)
        recipe = recipe_of(folder, options.size, options.steps)
        turns = [name for turn in range(options.rounds) for name in list(VARIANTS)[:: -1 if turn % 2 else 1]]
        requests = [request_of(folder, name, run, recipe) for run, name in enumerate(turns)]
        (folder / "requests.json").write_text(json.dumps([dataclasses.asdict(request) for request in requests]))
        variables = {**ENVIRONMENT, "MEGATRON_CONFIG_LOCK_DIR": text, "HF_HOME": text}
        run_module(
            "tests.support.guarded_runs", folder / "requests.json", folder / "results.json", limit_s=3600, **variables
        )
        results = json.loads((folder / "results.json").read_text())
    times_ms: dict[str, list[float]] = {name: [] for name in VARIANTS}
    cpu_s: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for name, result in zip(turns, results, strict=True):
        if result["exit_codes"] != [0]:
            sys.exit(result["outputs"][0][-3000:])
        times_ms[name].append(median(map(float, _STEP.findall(result["outputs"][0])[NUM_WARM:])))
        cpu_s[name].append(result["cpu_seconds"])
    for name, times in times_ms.items():
        ratios = [median(values[name]) / median(values["without"]) for values in (times_ms, cpu_s)]
        spread, cpu = f"{min(times):.1f} to {max(times):.1f}", f"{min(cpu_s[name]):.2f} to {max(cpu_s[name]):.2f}"
        print(f"{name:<10} {median(times):7.1f} ms a step ({spread}), ratio {ratios[0]:.3f}", end="; ")
        print(f"{median(cpu_s[name]):.2f} CPU s ({cpu}), ratio {ratios[1]:.3f}")


if __name__ == "__main__":
    main()
