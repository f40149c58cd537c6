"""Builds that are killed, interrupted, doubled, or out of space leave nothing half-written, and go on."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridgepack.data.output import RECEIPTS
from tests.support import small_builds as small
from tests.support.messages import mentions
from tests.support.processes import num_running, started, wait_until
from tests.support.small_builds import file_bytes

pytestmark = [pytest.mark.full, pytest.mark.on_disk]

#: The command, with ranges and shards so small that a little data keeps two workers busy for a second.
PROGRAM = """
import pathlib, resource, sys, time
from bridgepack.data import build
from bridgepack.data.reading import lines
from bridgepack.data.stages import split
build._BYTES_PER_WORKER, lines.MIN_BLOCK_BYTES, split._SHARD_TOKENS = 1, 20_000, 20_000
if {file_bytes}:
    resource.setrlimit(resource.RLIMIT_FSIZE, ({file_bytes}, {file_bytes}))
if {held!r}:
    from bridgepack.reporting.progress import TerminalProgress as Told
    method, stage = {held!r}
    start, own, stages = Told.start, getattr(Told, method), []
    def begin(self, *given):
        stages.append(given[0])
        start(self, *given)
    def hold(self, *given, **named):
        (begin if method == "start" else own)(self, *given, **named)
        if stages[-1] == stage:
            pathlib.Path("held").touch()
            time.sleep(600)
    Told.start = begin
    setattr(Told, method, hold)
from bridgepack.cli import main
main(sys.argv[1:])
"""
NUM_ROWS = 4000
LIMIT_S = 300.0


class Project:
    """A folder with data, tokenizer and recipe, and builds of it as processes of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder / "out"
        self.staging = folder / ".out.building"

    def start(
        self, num_workers: int, *, file_bytes: int = 0, held: tuple[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start a build in a process group of its own, as a terminal does.

        `held` is a method of its progress and a stage; the build goes on at the first such call only when it gets a
        signal, and makes the file `held` before.
        """
        program = (sys.executable, "-c", PROGRAM.format(file_bytes=file_bytes, held=held))
        build = ("build", "recipe.yaml", "--output", "out", "--num-workers", num_workers)
        return started(
            *program, *build, folder=self.folder, variables=small.environment(self.folder), has_own_group=True
        )

    def finish(self, process: subprocess.Popen[str]) -> tuple[int, str, str]:
        """Wait for the end and return exit code, output and errors; no process of its group may be left."""
        output, errors = process.communicate(timeout=LIMIT_S)
        wait_until(lambda: num_running(group=process.pid) == 0)
        return process.returncode, output, small.without_progress(errors)

    def entries(self) -> list[str]:
        """Return what a build could have made here."""
        return sorted(entry.name for entry in self.folder.iterdir() if entry.name.startswith(("out", ".out")))


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, chatml_tokenizer: Path) -> tuple[Path, dict[str, bytes], float]:
    """Return a project's folder, the files of its artifact, and the seconds from its staging folder to its end."""
    folder = tmp_path_factory.mktemp("project")
    rows = [small.chat_row(f"Question {index}?", f"Answer {index}. " * (1 + index % 4)) for index in range(NUM_ROWS)]
    small.write_json_lines(folder / "a.jsonl", rows)
    changes = {"preprocessing__kind": "chat", "packing__packed_sequence_size": 256, "data__validation_fraction": 0.1}
    small.write_recipe(folder / "recipe.yaml", small.tokenized_recipe("a.jsonl", chatml_tokenizer, **changes))
    project = Project(folder)
    process = project.start(1)
    wait_until(project.staging.exists)
    start_s = time.monotonic()
    code, output, errors = project.finish(process)
    assert (code, errors) == (0, "")
    assert output.startswith("Built out\n")
    return folder, file_bytes(project.output), time.monotonic() - start_s


@pytest.fixture
def project(reference: tuple[Path, dict[str, bytes], float], tmp_path: Path) -> Iterator[Project]:
    """Return a project with nothing built yet."""
    for name in ("a.jsonl", "recipe.yaml"):
        (tmp_path / name).write_bytes((reference[0] / name).read_bytes())
    project = Project(tmp_path)
    yield project
    assert [name for name in small.leftovers(tmp_path) if name.endswith((".building", ".old"))] == []


def test_killed_builds_end_in_the_same_bytes(project: Project, reference: tuple[Path, dict[str, bytes], float]) -> None:
    """Kills builds again and again, from the first moment to the last; BRIDGEPACK_KILLS says how often."""
    _, expected, duration_s = reference
    moments = random.Random(0)
    num_kills = int(os.environ.get("BRIDGEPACK_KILLS", "8"))
    num_killed = 0
    while num_killed < num_kills:
        process = project.start(1 + num_killed % 2)
        wait_until(project.staging.exists, process=process)
        time.sleep(duration_s * moments.random())
        process.kill()
        code, _, _ = project.finish(process)
        if code == -signal.SIGKILL:
            num_killed += 1
        else:
            assert code == 0
            duration_s *= 0.7  # this machine is faster now than it was
        if project.output.exists():
            assert file_bytes(project.output) == expected
            for place in (project.output, project.folder / ".bridgepack", project.staging):
                shutil.rmtree(place, ignore_errors=True)

    code, _, errors = project.finish(project.start(2))

    assert (code, errors) == (0, "")
    assert file_bytes(project.output) == expected
    assert project.entries() == ["out"]


@pytest.mark.parametrize(
    ("number", "num_workers", "held"),
    [
        (signal.SIGHUP, 1, ("start", "Tokenising training")),
        (signal.SIGTERM, 2, ("advance", "Tokenising training")),
        (signal.SIGINT, 1, ("start", "Packing training")),
        (signal.SIGHUP, 2, ("start", "Writing training")),
        (signal.SIGTERM, 2, ("advance", "Writing training")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_interrupted_build_says_so_in_one_line(
    project: Project,
    reference: tuple[Path, dict[str, bytes], float],
    number: signal.Signals,
    num_workers: int,
    held: tuple[str, str],
) -> None:
    process = project.start(num_workers, held=held)
    wait_until((project.folder / "held").exists, process=process)
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)

    code, output, errors = project.finish(process)

    after_the_terminal_s_own_line = errors.removeprefix("\n")
    assert (code, output) == (128 + number, "")
    assert after_the_terminal_s_own_line.startswith("interrupted; ")
    assert after_the_terminal_s_own_line.endswith(("resumes there\n", "no partial files remain\n"))
    assert after_the_terminal_s_own_line.count("\n") == 1
    assert "out" not in project.entries()
    assert not list(project.folder.glob(".bridgepack-*"))
    assert project.finish(project.start(1))[0] == 0
    assert file_bytes(project.output) == reference[1]


def test_second_build_of_an_output_is_refused(
    project: Project, reference: tuple[Path, dict[str, bytes], float]
) -> None:
    first = project.start(1)
    wait_until((project.staging / RECEIPTS).exists, process=first)  # then the lock is held
    os.kill(first.pid, signal.SIGSTOP)
    code, output, errors = project.finish(project.start(1))
    os.kill(first.pid, signal.SIGCONT)

    assert (code, output) == (2, "")
    assert errors.startswith("error: another build is ")
    assert errors.count("\n") == 1
    assert project.finish(first)[0] == 0
    assert file_bytes(project.output) == reference[1]


@pytest.mark.parametrize("num_workers", [1, 2])
def test_full_disk_is_a_message_and_leaves_nothing(project: Project, num_workers: int) -> None:
    code, output, errors = project.finish(project.start(num_workers, file_bytes=4096))

    assert (code, output) == (2, "")
    assert mentions(errors, ".bridgepack/tokens' cannot be written: ", "File too large")
    assert mentions(errors, "free space", "--output or --store")
    assert "Traceback" not in errors
    assert project.entries() == []
