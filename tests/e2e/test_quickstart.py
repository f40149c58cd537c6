"""scripts/quickstart and its steps, in the environment that runs the tests: nothing is installed, nothing fetched."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.small_builds import CLI, run_command

ROOT = Path(__file__).parents[2]


def copy_project(folder):
    for name in ("scripts/quickstart", "recipes/quickstart.yaml", "pyproject.toml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def add_environment(project):
    """Give the project a `.venv` whose commands are those of the running environment."""
    commands = {"python": f'exec "{sys.executable}" "$@"', "bridgepack": f'exec {CLI[0]} -c "{CLI[2]}" "$@"'}
    (project / ".venv/bin").mkdir(parents=True)
    for name, line in commands.items():
        (project / ".venv/bin" / name).write_text(f"#!/bin/sh\n{line}\n")
        (project / ".venv/bin" / name).chmod(0o755)
    shutil.copy(project / "pyproject.toml", project / ".venv/installed-pyproject.toml")


def training_split(artifact):
    manifest = json.loads((artifact / "manifest.json").read_text())
    return next(split for split in manifest["splits"] if split["name"] == "training")


@pytest.mark.full
def test_script_runs_and_runs_again(tmp_path):
    project = copy_project(tmp_path / "project with spaces")
    add_environment(project)
    first = run_command(tmp_path, project / "scripts/quickstart")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "Next, with your own" in first.stdout
    split = training_split(project / "quickstart/artifact")
    assert split["statistics"]["num_sequences"] > 5000
    assert set(split["drops"]) == {"over_long"}

    second = run_command(tmp_path, project / "scripts/quickstart", "--output", "elsewhere")
    assert second.returncode == 0, second.stdout + second.stderr
    assert "installing" not in second.stdout
    assert training_split(tmp_path / "elsewhere") == split


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--outptu", "x"], "unknown argument: --outptu"), (["--output"], "--output needs a folder")],
)
def test_script_refuses_wrong_arguments(tmp_path, arguments, message):
    done = run_command(tmp_path, ROOT / "scripts/quickstart", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "usage: scripts/quickstart" in done.stderr


def test_script_says_what_is_missing_where_there_is_no_python(tmp_path):
    project = copy_project(tmp_path / "project")
    (tmp_path / "bin").mkdir()
    for name in ("bash", "dirname", "cmp"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name))
    nowhere = str(tmp_path / "nowhere")
    places = {"PATH": str(tmp_path / "bin"), "HOME": nowhere, "PYENV_ROOT": nowhere, "XDG_DATA_HOME": nowhere}
    done = run_command(tmp_path, shutil.which("bash"), project / "scripts/quickstart", **places)
    assert done.returncode == 1
    assert "Found neither Python 3.12 (or newer) nor uv" in done.stderr
    assert "again is safe" in done.stderr
    assert not (project / ".venv").exists()
