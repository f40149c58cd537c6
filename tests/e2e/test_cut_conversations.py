"""Conversations cut between exchanges: killed repacks, and those on two Ray nodes, write the bytes of a build."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_ray_build import LIMIT_S, PROGRAM, num_token_files
from tests.support import small_builds as small
from tests.support import thoughtful
from tests.support.processes import started, wait_until
from tests.support.ray_nodes import two_ray_nodes
from tests.support.thoughtful import said
from tests.support.tokenizers import write_tokenizer

pytestmark = pytest.mark.full

NUM_ROWS = 700


def _project(folder: Path, action: str) -> Path:
    """Write conversations of one to twelve exchanges, and a recipe that cuts the longer ones."""
    rows = []
    for number in range(NUM_ROWS):
        turns = [said("system", "answer in one line")]
        for exchange in range(1 + number % 12):
            turns += [said("user", f"question {number} {exchange}"), said("assistant", "word " * (1 + number % 17))]
        rows.append(turns)
    folder.mkdir()
    thoughtful.write_rows(folder / "train.jsonl", rows)
    tokenizer = write_tokenizer(folder / "tokenizer", thoughtful.FAMILIES["exchanges"])
    recipe = small.small_recipe(
        "train.jsonl",
        tokenizer,
        data={"train": "train.jsonl", "validation_fraction": 0.1},
        preprocessing={"kind": "chat", "over_long": action},
        packing={"packed_sequence_size": 256},
    )
    small.write_recipe(folder / "recipe.yaml", recipe)
    return folder


def _start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = (sys.executable, "-c", PROGRAM, *arguments)
    return started(*command, folder=folder, variables=small.environment(folder))


def _finished(process: subprocess.Popen[str]) -> Any:
    output, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, errors
    return json.loads(output)


def test_a_killed_repack_and_one_on_two_ray_nodes_write_the_bytes_of_a_build(tmp_path: Path) -> None:
    folder = _project(tmp_path / "project", "split_exchanges")
    longer = ("--set", "packing.packed_sequence_size=512")
    _finished(_start(folder, "build", "recipe.yaml", "--output", "out", "--json"))
    _finished(_start(folder, "build", "recipe.yaml", *longer, "--output", "fresh", "--store", "other", "--json"))
    num_before = num_token_files(folder)
    with (
        tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as place,
        two_ray_nodes(Path(place)) as nodes,
    ):
        ray = ("repack", "out", *longer, "--engine", "ray", "--ray-address", nodes.address, "--json", "--output", "ray")
        killed = _start(folder, *ray)
        wait_until(lambda: num_token_files(folder) > num_before, process=killed)
        killed.kill()
        killed.communicate(timeout=60)
        again = _finished(_start(folder, *ray))

    assert again["num_ranges_found"] > 0
    assert small.file_bytes(folder / "ray") == small.file_bytes(folder / "fresh")
    local = _finished(_start(folder, "repack", "ray", "--set", "packing.packed_sequence_size=256", "--json"))
    assert local["num_ranges_tokenized"] == 0  # the first build made them
