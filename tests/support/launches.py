"""A small recipe that passes the check on this machine, with the files that it names; and how a launch of it ended."""

import json
import subprocess
from pathlib import Path
from typing import Any

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.write import recipe_to_yaml
from tests.support.small_builds import small_recipe, tokenized_row, with_changes, write_json_lines


def launch_recipe(folder: Path, tokenizer: Path, **changes: Any) -> SFTRecipe:
    """Return the recipe of a run on one GPU; its data is written, and a checkpoint that it could start from."""
    rows = write_json_lines(folder / "rows.jsonl", [tokenized_row(10 + index, 5, 6, 7) for index in range(40)])
    weights = folder / "weights"
    weights.mkdir(exist_ok=True)
    (weights / "latest_checkpointed_iteration.txt").write_text("1")
    sections = {
        "preprocessing": {"kind": "tokenized"},
        "model": {"name": "Qwen/Qwen3-8B"},
        "parallelism": {"num_gpus": 1},
        "batch": {"global_batch_size": 2},
        "checkpoint": {"pretrained": str(weights), "folder": str(folder / "checkpoints")},
        "ignore": {"BP984": "the machine that tests has no GPU"},
    }
    return with_changes(small_recipe(rows, tokenizer, **sections), changes)


def write_launch_recipe(folder: Path, tokenizer: Path, **changes: Any) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(recipe_to_yaml(launch_recipe(folder, tokenizer, **changes)))
    return path


def ended(launch: subprocess.Popen[str], *, limit_s: float = 300) -> tuple[int, dict[str, Any], str]:
    """Return the exit code of `bridgepack launch --json`, what it printed, and what it said beside."""
    try:
        output, errors = launch.communicate(timeout=limit_s)
    finally:
        launch.kill()
    assert output, errors
    return launch.returncode, json.loads(output), errors


def states(result: dict[str, Any]) -> dict[str, str]:
    """Return task -> its state, of what a launch printed."""
    return {task["name"]: task["state"] for task in result["tasks"]}
