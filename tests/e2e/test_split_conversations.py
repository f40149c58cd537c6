"""Builds that split conversations: killed again and again, or on two Ray nodes, they write the same bytes."""

import random
import shutil
import signal
import tempfile
import time
from pathlib import Path

import pytest

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.proof.verify.verify import VerifyOptions, verify_artifact
from tests.e2e.test_interruption import Project
from tests.e2e.test_ray_build import finished, start
from tests.support import small_builds as small
from tests.support import thoughtful
from tests.support.processes import wait_until
from tests.support.ray_nodes import two_ray_nodes
from tests.support.thoughtful import said
from tests.support.tokenizers import write_tokenizer

pytestmark = pytest.mark.full

NUM_ROWS, NUM_KILLS = 2000, 3


def _project(folder: Path) -> Path:
    """Write conversations of one to four answers with thoughts, some of them twice, and a recipe that splits them."""
    folder.mkdir()
    rows = []
    for number in range(NUM_ROWS):
        turns = []
        for answer in range(1 + number % 4):
            turns.append(said("user", f"question {number % 1900} {answer}"))
            turns.append(said("assistant", f"answer {answer} " * (1 + number % 9), reasoning_content="think of it"))
        rows.append(turns)
    thoughtful.write_rows(folder / "train.jsonl", rows)
    tokenizer = write_tokenizer(folder / "tokenizer", thoughtful.FAMILIES["exchanges"])
    recipe = small.small_recipe(
        "train.jsonl",
        tokenizer,
        data={"train": "train.jsonl", "validation_fraction": 0.1, "deduplicate": "exact"},
        preprocessing={"kind": "chat", "split_conversations": "when_context_differs"},
        packing={"packed_sequence_size": 256, "max_sequence_length": 200},
    )
    small.write_recipe(folder / "recipe.yaml", recipe)
    return folder


def test_killed_builds_end_in_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference, project = Project(_project(tmp_path / "one")), Project(_project(tmp_path / "two"))
    begun_s = time.monotonic()
    assert reference.finish(reference.start(1))[0] == 0
    duration_s, moments, num_killed = time.monotonic() - begun_s, random.Random(0), 0
    while num_killed < NUM_KILLS:
        process = project.start(1 + num_killed % 2)
        wait_until(project.staging.exists, process=process)
        time.sleep(duration_s * moments.random() / 4)
        process.kill()
        if project.finish(process)[0] == -signal.SIGKILL:
            num_killed += 1
        else:
            duration_s *= 0.7
        if project.output.exists():
            for place in (project.output, project.folder / ".bridgepack", project.staging):
                shutil.rmtree(place, ignore_errors=True)

    code, _, errors = project.finish(project.start(2))

    assert (code, errors) == (0, "")
    assert project.entries() == ["out"]
    assert small.data_bytes(project.output) == small.data_bytes(reference.output)
    numbers = Artifact(project.output).manifest.splits[0].statistics
    assert numbers.num_split > 500
    assert numbers.num_partly_packed > 0
    monkeypatch.chdir(project.folder)
    assert verify_artifact(project.output, VerifyOptions()).outcome == "same"


def test_two_ray_nodes_write_the_bytes_of_one_machine(tmp_path: Path) -> None:
    folder = _project(tmp_path / "project")
    code, _, errors = finished(start(folder, "--output", "local", "--store", "store-of-local"))
    assert code == 0, errors
    with (
        tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as place,
        two_ray_nodes(Path(place)) as nodes,
    ):
        ray = finished(start(folder, "--output", "out", "--engine", "ray", "--ray-address", nodes.address))

    assert ray[0] == 0, ray[2]
    assert small.file_bytes(folder / "out") == small.file_bytes(folder / "local")
