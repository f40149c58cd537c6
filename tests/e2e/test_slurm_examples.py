"""The two Slurm scripts of docs/scale.md on a real Slurm of two nodes, each with a build that is requeued midway.

Only sizes and folders of the scripts are others. Both nodes are this machine, and so are the nodes of Ray.
"""

import importlib.util
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bridgepack.config.load import load_recipe
from tests.support import small_builds as small
from tests.support.docs_blocks import blocks
from tests.support.processes import wait_until
from tests.support.slurm import Slurm, SlurmUnavailableError, running_slurm

pytestmark = [pytest.mark.bridge, pytest.mark.full]

NUM_PARTS = 2
_HELD_PART = "1"
_LIMIT_S = 300
#: The command with small ranges. A job that has not been requeued stops for good where its build has a few ranges; of
#: an array only one task does.
_COMMAND = f"""\
#!{sys.executable}
import os, signal
from pathlib import Path
from bridgepack.cli import main
from bridgepack.data import results
from bridgepack.data.reading import lines

lines.MIN_BLOCK_BYTES = 50_000
add_range = results.Kept.add_range

def hold(kept, result):
    add_range(kept, result)
    if kept.num_ranges_tokenized == 3:
        Path("held").touch()
        signal.pause()

if "SLURM_RESTART_COUNT" not in os.environ and os.environ.get("SLURM_ARRAY_TASK_ID", "{_HELD_PART}") == "{_HELD_PART}":
    results.Kept.add_range = hold
main()
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """A cluster, and what a user has there."""

    slurm: Slurm
    folder: Path  # in which jobs are submitted; `shared/` in it stands for `/shared/`
    ray: Path  # for Ray's own files

    @property
    def packed(self) -> Path:
        """Where the scripts put what they build."""
        return self.folder / "shared" / "packed"

    def submit(self, heading: str, changes: dict[str, str]) -> str:
        """Submit the script below a heading of the page, with other sizes, and return the number of its job."""
        [script] = [block.text for block in blocks("bash", page="scale.md") if block.heading == f"## {heading}"]
        for old, new in {**changes, "/shared/": f"{self.folder}/shared/"}.items():
            assert old in script
            script = script.replace(old, new)
        (self.folder / "job.sh").write_text(script)
        place = f"--chdir={self.folder}"
        output = f"--output={self.folder}/%x-%A-%a.log" if "--array" in script else f"--output={self.folder}/%x-%j.log"
        return self.slurm.run(
            "sbatch", "--parsable", place, output, str(self.folder / "job.sh"), **self._variables()
        ).strip()

    def _variables(self) -> dict[str, str]:
        # Ray gives a node half a minute to begin, which is short on two busy processors.
        mine = small.environment(self.folder, RAY_TMPDIR=str(self.ray), RAY_raylet_start_wait_time_s=str(_LIMIT_S))
        path = os.pathsep.join(map(str, (self.folder / "bin", self.slurm.folder / "bin", Path(sys.prefix) / "bin")))
        names = ("PYTHONPATH", "HF_HOME", "RAY_TMPDIR", "RAY_raylet_start_wait_time_s")
        return {**{name: mine[name] for name in names}, "PATH": os.pathsep.join((path, mine["PATH"]))}

    def requeue(self, job: str) -> None:
        """Requeue a job whose build is held, and let it begin soon: Slurm would wait for two minutes.

        Not at once: a node refuses a job that begins in the second in which it was ended there.
        """
        self.slurm.run("scontrol", "requeue", job)
        wait_until(lambda: self.state(job) == "PENDING", f"job {job} waits again", limit_s=_LIMIT_S)
        self.slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now+3")

    def state(self, job: str) -> str:
        return self.slurm.job(job)["JobState"]

    def wait_for_held(self, job: str) -> None:
        """Return when the build of a job is midway."""
        mark = self.folder / "held"
        wait_until(
            lambda: mark.exists() or self.state(job) not in {"PENDING", "CONFIGURING", "RUNNING"},
            "its build is held",
            limit_s=_LIMIT_S,
        )
        assert mark.exists(), self.log()

    def log(self) -> str:
        """Return what jobs printed."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log")))

    def plain_bytes(self, **changes: str) -> dict[str, bytes]:
        """Return the files of an artifact that is built in this process, in a store of its own."""
        recipe = small.with_changes(load_recipe(self.folder / "recipe.yaml"), changes)
        with tempfile.TemporaryDirectory(dir=self.folder) as place:
            small.build(recipe, Path(place) / "plain", store=Path(place) / "store")
            return small.file_bytes(Path(place) / "plain")

    def processes(self, word: str = "") -> list[str]:
        """Return the commands of the processes that use Ray's folder and have a word in their command.

        These are Ray's and builds. Those whose parent has ended escape a Slurm without cgroups: they have to end alone.
        """
        commands = [_command(process, self.ray) for process in Path("/proc").glob("[0-9]*")]
        return [command for command in commands if command and word in command]


def _command(process: Path, folder: Path) -> str:
    """Return a process's command if that or its environment names a folder, or a file of it is open; otherwise ``."""
    path = os.fsencode(folder)
    try:
        command = (process / "cmdline").read_bytes()
        opened = (os.fsencode(link.readlink()) for link in (process / "fd").iterdir())
        texts = (command, (process / "environ").read_bytes(), *opened)
    except OSError:  # it has ended, or is of somebody else
        return ""
    return command.replace(b"\0", b" ").decode(errors="replace") if any(path in text for text in texts) else ""


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    try:
        with running_slurm(num_nodes=2) as cluster:
            yield cluster
    except SlurmUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture
def site(slurm: Slurm, tmp_path: Path, chatml_tokenizer: Path) -> Iterator[Site]:
    for part in range(NUM_PARTS):
        for name in ("a", "b"):
            asked = [f"{part}{name} {row} " * (row % 7 + 1) for row in range(700)]
            rows = [small.chat_row(question, f"answer {part}{name} " * 20) for question in asked]
            small.write_json_lines(tmp_path / "shared" / "chats" / f"{part:03d}-{name}.jsonl", rows)
    recipe = small.tokenized_recipe(
        tmp_path / "shared" / "chats", chatml_tokenizer, preprocessing__kind="chat", packing__packed_sequence_size=2048
    )
    small.write_recipe(tmp_path / "recipe.yaml", recipe)
    command = tmp_path / "bin" / "bridgepack"
    command.parent.mkdir()
    command.write_text(_COMMAND)
    command.chmod(0o755)
    ray = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # sockets lie in it, whose paths must be short
    try:
        yield Site(slurm=slurm, folder=tmp_path, ray=ray)
    finally:
        slurm.cancel_all()
        shutil.rmtree(ray, ignore_errors=True)


def test_the_array_builds_every_part_and_a_requeued_one_goes_on(site: Site) -> None:
    smaller = {"--cpus-per-task=32": "--cpus-per-task=1", "--mem=64G": "--mem=1G", "--memory 56G": "--memory 1G"}
    number = site.submit("Slurm arrays", {"--array=0-99": f"--array=0-{NUM_PARTS - 1}", **smaller})
    jobs = [f"{number}_{part}" for part in range(NUM_PARTS)]
    held = f"{number}_{_HELD_PART}"
    site.wait_for_held(held)
    site.requeue(held)
    wait_until(lambda: not site.slurm.queued(), "the array ends", limit_s=_LIMIT_S)

    assert [site.state(job) for job in jobs] == ["COMPLETED"] * NUM_PARTS, site.log()
    [found] = re.findall(r"(\d+) of \d+ input ranges were tokenised before", site.log())
    assert int(found) >= 3
    for part in range(NUM_PARTS):
        source = f"{site.folder}/shared/chats/{part:03d}-*.jsonl"
        assert small.file_bytes(site.packed / f"{part:03d}") == site.plain_bytes(data__train=source)
    checked = small.run_cli(site.folder, "check", f"{site.packed}/*/training/*.parquet")
    assert (checked.returncode, "2 of 2 shards" in checked.stdout) == (0, True), checked.stdout
    assert not list(small.leftovers(site.folder))


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_ray_on_slurm_builds_the_bytes_of_one_machine_and_goes_on_when_requeued(site: Site) -> None:
    job = site.submit("Ray on Slurm", {"--nodes=4": "--nodes=2", "--cpus-per-task=64": "--cpus-per-task=1"})
    site.wait_for_held(job)
    wait_until(lambda: len(site.processes("/raylet/raylet")) == 2, "Ray has both nodes", limit_s=_LIMIT_S)
    site.requeue(job)
    wait_until(lambda: not site.slurm.queued(), "the job ends", limit_s=_LIMIT_S)

    assert (site.state(job), site.slurm.job(job)["ExitCode"]) == ("COMPLETED", "0:0"), site.log()
    [found] = re.findall(r"(\d+) of \d+ input ranges were tokenised before", site.log())
    assert int(found) >= 3
    assert small.file_bytes(site.packed) == site.plain_bytes()
    checked = small.run_cli(site.folder, "check", site.packed)
    assert checked.returncode == 0, checked.stdout
    assert not list(small.leftovers(site.folder))
    wait_until(lambda: not site.processes(), lambda: "\n".join(["these have ended:", *site.processes()]))
