"""A Slurm on this machine for the tests: started with tests/environment/slurm, asked through its own commands."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import wait_until

PROJECT = Path(__file__).parents[2]
_SCRIPT = PROJECT / "tests" / "environment" / "slurm"
#: Fetching the packages takes 5 s, starting 4 s; a machine without network must not wait for long.
_START_LIMIT_S = 180
_STOP_LIMIT_S = 60
_COMMAND_LIMIT_S = 30


class SlurmUnavailableError(Exception):
    """There can be no Slurm on this machine; the message says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Slurm:
    """A running Slurm."""

    #: Where its commands, settings and logs are.
    folder: Path

    def environment(self, **variables: str) -> dict[str, str]:
        """Return an environment in which Slurm's commands are this one's, and in which nothing is a Slurm job."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH"))}
        return {**inherited, "PATH": os.pathsep.join((str(self.folder / "bin"), os.environ["PATH"])), **variables}

    def run(self, command: str, *arguments: str, **variables: str) -> str:
        """Return what one of Slurm's commands prints, run with further environment variables."""
        finished = subprocess.run(
            [str(self.folder / "bin" / command), *arguments],
            env=self.environment(**variables),
            capture_output=True,
            text=True,
            timeout=_COMMAND_LIMIT_S,
            check=True,
        )
        return finished.stdout

    def job(self, job_id: str) -> dict[str, str]:
        """Return what the controller says about a job, e.g. JobState, Dependency, Reason, ExitCode."""
        words = self.run("scontrol", "--oneliner", "show", "job", job_id).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def states(self, *job_ids: str) -> list[str]:
        """Return the state of each job, as accounting has it; `` for one that it does not know yet."""
        rows = self.run("sacct", "-nPX", "--format=JobID,State", "--jobs", ",".join(job_ids)).splitlines()
        known = dict(row.split("|") for row in rows)
        return [known.get(job_id, "").split(" ")[0] for job_id in job_ids]

    def is_any_alive(self, *job_ids: str) -> bool:
        return bool({"PENDING", "RUNNING", "COMPLETING"} & set(self.states(*job_ids)))

    def queued(self) -> list[str]:
        return self.run("squeue", "--noheader", "--format=%i").split()

    def cancel_all(self) -> None:
        self.run("scancel", "--full", "--state=RUNNING", "--signal=KILL")
        self.run("scancel", "--state=PENDING")
        wait_until(lambda: not self.run("squeue", "--noheader"), "no job is left")


@contextmanager
def running_slurm(num_nodes: int = 1) -> Iterator[Slurm]:
    """Yield a Slurm with partitions `cpu` and `gpu` and accounting; a node has four processors and two GPUs."""
    # Not below pytest's folder: the path of a socket has 107 characters at most.
    parent = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    parent.chmod(0o755)
    folder = parent / "slurm"
    try:
        _script("start", str(folder), sys.prefix, str(num_nodes), limit_s=_START_LIMIT_S)
        yield Slurm(folder=folder)
    finally:
        if folder.exists():
            _script("stop", str(folder), limit_s=_STOP_LIMIT_S)
        shutil.rmtree(parent)


def _script(*arguments: str, limit_s: float) -> None:
    command = ["bash", str(_SCRIPT), *arguments]
    with tempfile.TemporaryFile("w+") as log:  # not a pipe: the daemons would keep it open
        try:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=limit_s, check=True)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            log.seek(0)
            lines = log.read().strip().splitlines() or [str(error)]
            raise SlurmUnavailableError(lines[-1]) from error
