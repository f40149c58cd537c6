#!/usr/bin/env python3
"""Prints how much longer a step takes with losses by source and by row, in the real finetune() on CPU.

Two sources, a tiny dense model. A run follows the losses in ten steps, and not in the next ten, again and again: two
processes of the same work differ by 5 %, which is more than what is measured. The next run of the variant follows the
other tens, as packs differ in their work, too. Ten steps that are followed end with a report. A pair's ratio is the
mean of its two runs' (geometric), each of the medians of its tens, without the first twenty steps. A real model
computes a thousand times more in a step, and what follows the losses costs the same.
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
    "by_source": {"losses.by_source": True},
    "by_row": {"losses.by_source": True, "losses.by_row": True},
}
#: Steps that are followed, after as many that are not.
TURN = 10
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
        "losses": {"every_steps": TURN},
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
    """Return one run of a variant; every other one follows the odd tens."""
    path, place = folder / f"{variant}.yaml", folder / "runs" / f"{variant}-{run}"
    path.write_text(recipe_to_yaml(recipe.override(dict(VARIANTS[variant]))), encoding="utf-8")
    words = ("--recipe", str(path), "--run-folder", str(place), "--artifact", str(folder / "packs"))
    damage = f"follow losses of {'odd' if run % 2 else 'even'} tens"
    return RunRequest(world_size=1, arguments=words, log=f"{place}-log", timeout_s=600.0, damage=damage)


def times_of(output: str, run: int) -> tuple[float, float]:
    """Return the median times of ten steps without and with losses, in ms, from what a run printed."""
    times = np.array([float(time) for time in _STEP.findall(output)])
    even, odd = np.median(times.reshape(-1, 2, TURN)[1:].sum(2), axis=0).tolist()
    return (even, odd) if run % 2 else (odd, even)


def main() -> None:
    """Train in turns, and print a line for each variant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1024, metavar="TOKENS", help="of a pack (default: 1024)")
    parser.add_argument("--steps", type=int, default=200, metavar="N", help="of a run, a multiple of 20 (default: 200)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="pairs of runs of each variant (default: 5)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        write_inputs(folder, options.size)
        recipe = recipe_of(folder, options.size, options.steps)
        turns = [(name, run) for run in range(2 * options.rounds) for name in VARIANTS]
        requests = [request_of(folder, name, run, recipe) for name, run in turns]
        (folder / "requests.json").write_text(json.dumps([dataclasses.asdict(request) for request in requests]))
        variables = {**ENVIRONMENT, "MEGATRON_CONFIG_LOCK_DIR": text, "HF_HOME": text}
        run_module(
            "tests.support.guarded_runs", folder / "requests.json", folder / "results.json", limit_s=3600, **variables
        )
        results = json.loads((folder / "results.json").read_text())
    times_ms: dict[str, list[tuple[float, float]]] = {name: [] for name in VARIANTS}
    for (name, run), result in zip(turns, results, strict=True):
        if result["exit_codes"] != [0]:
            sys.exit(result["outputs"][0][-3000:])
        times_ms[name].append(times_of(result["outputs"][0], run))
    for name, times in times_ms.items():
        runs = np.array([followed / without for without, followed in times])
        ratios = np.sqrt(runs[::2] * runs[1::2]).tolist()
        step_ms = median(without for without, _ in times) / TURN
        spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
        print(f"{name:<10} {step_ms:7.1f} ms a step, ratio {median(ratios):.3f} ({spread})")


if __name__ == "__main__":
    main()
