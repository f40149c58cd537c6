"""Measures whole builds: bridgepack's commands as a user runs them, and Megatron-Bridge's function."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from benchlib.bridgepack_side import recipe
from benchlib.built import describe_built
from benchlib.raw_side import fresh
from benchlib.settings import BEST_FIT_DECREASING, FIRST_FIT_SHUFFLE
from benchlib.side import timed

_COMMAND = (sys.executable, "-c", "from bridgepack.cli import main; main()")


def bridgepack(data: str, tokenizer: str, output: str, engine: str, num_workers: int) -> dict[str, Any]:
    """Return what the command `build --check` takes, with its start; nothing is in the token store."""
    found: dict[str, Any] = {}
    with fresh(output) as folder:
        values = recipe(data, tokenizer, BEST_FIT_DECREASING)
        values["tokenizer"]["engine"] = engine
        (folder / "recipe.yaml").write_text(json.dumps(values), encoding="utf-8")
        artifact = folder / "artifact"
        arguments = ["build", str(folder / "recipe.yaml"), "--output", str(artifact), "--workers", str(num_workers)]
        with timed(found):
            run([*arguments, "--check"], good=(0, 1))
        return {**found, **describe_built(artifact / "training")}


def upstream(data: str, tokenizer: str, output: str, num_workers: int) -> dict[str, Any]:
    """Return what the function takes, without Python's start and its imports: half a minute."""
    with fresh(output) as folder:
        (folder / "training.jsonl").symlink_to(data)
        arguments = [str(folder), str(folder / "training.jsonl"), tokenizer, FIRST_FIT_SHUFFLE, str(num_workers)]
        subprocess.run([sys.executable, "-m", "benchlib.upstream_side", *arguments], check=True)
        phases = json.loads((folder / "phases.json").read_text())
        found = {"seconds": phases["build"], "cpu_s": phases["build_cpu"], "import_s": phases["imports"]}
        return {**found, **describe_built(folder / "packed")}


def run(arguments: list[str], good: tuple[int, ...] = (0,)) -> None:
    """Run a command of bridgepack.

    Raises:
        SystemExit: when it fails; what it printed is in this process's log.
    """
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false"}
    code = subprocess.run([*_COMMAND, *arguments], env=environment, check=False).returncode
    if code not in good:
        raise SystemExit(f"bridgepack {' '.join(arguments)} ended with {code}")
