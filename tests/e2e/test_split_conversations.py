"""Builds that split conversations, killed again and again, write the same bytes."""

import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.proof.verify.verify import VerifyOptions, verify_artifact
from tests.e2e.test_interruption import Project
from tests.support import ray_projects
from tests.support import small_builds as small
from tests.support.processes import wait_until

pytestmark = pytest.mark.full

NUM_KILLS = 3


def test_killed_builds_end_in_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference, project = (Project(ray_projects.split(tmp_path / name)) for name in ("one", "two"))
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
