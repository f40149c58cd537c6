"""A run of the tests works in memory where there is room, leaves nothing there, and names the processes it leaves."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import run_folder

PROJECT = Path(__file__).parents[2]
#: Makes a folder in memory, says which, and waits.
_HOLDS = """
import sys, time
from pathlib import Path
sys.path.insert(0, ".")
from tests.support.run_folder import folder_in_memory
print(folder_in_memory(Path(sys.argv[1])), flush=True)
time.sleep(600)
"""
_LEAVES = """
import subprocess, time
import pytest
from pathlib import Path

def test_leaves(tmp_path):
    subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

def test_ends(tmp_path):
    subprocess.run(["true"], check=True)
    print(tmp_path)

@pytest.mark.on_disk
def test_on_disk(tmp_path):
    print(tmp_path)
"""


@pytest.fixture
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have room in memory, whatever this machine has."""
    monkeypatch.setattr(run_folder, "NEEDED_BYTES", 1)


def test_a_folder_of_a_killed_run_goes_and_one_of_a_living_run_stays(tmp_path: Path, roomy: None) -> None:
    program = [sys.executable, "-c", _HOLDS, str(tmp_path)]
    with (
        subprocess.Popen(program, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as killed,
        subprocess.Popen(program, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as living,
    ):
        assert killed.stdout is not None
        assert living.stdout is not None
        folders = [Path(stream.readline().strip()) for stream in (killed.stdout, living.stdout)]
        try:
            os.kill(killed.pid, signal.SIGKILL)
            killed.wait()
            new = run_folder.folder_in_memory(tmp_path)
            assert new is not None
            assert {path.name for path in tmp_path.iterdir()} == {folders[1].name, new.name}
        finally:
            living.kill()


@pytest.mark.parametrize("place", ["away", "full"])
def test_without_room_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setattr(run_folder, "NEEDED_BYTES", 1 << 60)

    assert run_folder.folder_in_memory(tmp_path if place == "full" else tmp_path / place) is None
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def inner(tmp_path: Path) -> Path:
    """Return a file of tests, which are run with this project's conftest."""
    path = tmp_path / "inner.py"
    path.write_text(_LEAVES)
    return path


def _pytest(inner: Path, *words: str) -> subprocess.CompletedProcess[str]:
    options = ["-p", "tests.conftest", "-c", str(PROJECT / "pyproject.toml"), "--rootdir", str(inner.parent), "-rP"]
    command = [sys.executable, "-m", "pytest", *options, str(inner), *words]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)


def test_a_process_that_a_test_leaves_fails_the_run_and_is_named(inner: Path) -> None:
    ran = _pytest(inner, "-n1")

    (told,) = (line for line in ran.stdout.splitlines() if line.startswith("process "))
    os.kill(int(told.split()[1]), signal.SIGKILL)
    assert "inner.py::test_leaves (call): sleep 600" in told
    assert ran.returncode == 1
    assert "3 passed" in ran.stdout


def test_a_run_leaves_nothing_in_memory_and_tests_of_disks_are_not_in_it(inner: Path) -> None:
    ran = _pytest(inner, "-n0", "-k", "test_ends or test_on_disk")

    assert ran.returncode == 0, ran.stdout
    folders = [Path(line) for line in ran.stdout.splitlines() if line.startswith("/")]
    assert len(folders) == 2
    assert not any(folder.exists() for folder in folders)
    assert not any(folder.is_relative_to(run_folder.MEMORY) for folder in folders if "on-disk" in folder.name)
