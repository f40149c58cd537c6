"""scripts/test: what it installs and runs for a contributor, for CI and for one test; by programs that say so."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import installed_host

PROJECT = Path(__file__).parents[2]
PROGRAMS = ("ruff", "mypy", "lint-imports", "python")
INSTALLERS = ("install", "install_object_store", "install_platforms")
CHECKS = ["ruff", "ruff", "mypy", "lint-imports"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project whose programs and installers write their names and arguments into `told`."""
    for script in ("scripts/test", ".ci/run"):
        (tmp_path / script).parent.mkdir(parents=True)
        shutil.copy(PROJECT / script, tmp_path / script)
    told = f'echo "$(basename "$0") $*" >> "{tmp_path}/told"'
    for path in [f".venv-test/bin/{name}" for name in PROGRAMS] + [f"tests/environment/{name}" for name in INSTALLERS]:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"#!/bin/sh\n{told}\n")
        (tmp_path / path).chmod(0o755)
    return tmp_path


def _told(project: Path, *command: str) -> list[list[str]]:
    subprocess.run(["bash", *command], cwd=project, capture_output=True, check=True)
    return [line.split() for line in (project / "told").read_text().splitlines()]


def test_a_contributor_runs_the_checks_and_the_quick_tests(project: Path) -> None:
    told = _told(project, "scripts/test")

    assert told[0] == ["install", str(project / ".venv-test")]
    assert sorted(words[0] for words in told[1:]) == sorted([*CHECKS, "python"])
    (pytest_run,) = (words for words in told if "pytest" in words)
    assert "-m not full and not reference_data --hypothesis-profile=quick" in " ".join(pytest_run)


@pytest.mark.parametrize(("command", "num_configs"), [((".ci/run",), ""), (("scripts/test", "--exhaustive"), "3500")])
def test_ci_runs_everything_and_the_exhaustive_tier_draws_more(
    project: Path, command: tuple[str, ...], num_configs: str
) -> None:
    python = f'#!/bin/sh\necho "python $*" >> "{project}/told"; echo "$BRIDGEPACK_NUM_CONFIGS" > "{project}/drawn"\n'
    (project / ".venv-test/bin/python").write_text(python)
    told = _told(project, *command)

    assert (project / "drawn").read_text().strip() == num_configs
    assert [words[0] for words in told[: len(INSTALLERS)]] == list(INSTALLERS)
    assert sorted(words[0] for words in told[len(INSTALLERS) :]) == sorted([*CHECKS, "python"])
    (pytest_run,) = (words for words in told if words[0] == "python")
    assert "not" not in pytest_run
    assert pytest_run[:3] == ["python", "-m", "pytest"]


def test_the_readme_names_the_command_that_ci_runs() -> None:
    (command,) = re.findall(r"/\.\./(scripts/test.*)$", (PROJECT / ".ci/run").read_text().replace('"', ""), re.M)

    assert command == "scripts/test --all"
    assert f"`{command}`" in (PROJECT / "README.md").read_text(encoding="utf-8")
    for tier in ("scripts/test", command, "scripts/test --exhaustive"):
        assert f"\n{tier}  " in (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_with_arguments_only_pytest_runs(project: Path) -> None:
    told = _told(project, "scripts/test", "tests/unit", "-k", "format")

    assert [words[0] for words in told[:-1]] == ["install"]
    assert told[-1] == ["python", "-m", "pytest", "tests/unit", "-k", "format"]


def test_packages_of_megatron_can_come_from_a_folder(project: Path) -> None:
    (project / ".venv-test/bin/python").write_text(f'#!/bin/sh\necho "$BRIDGEPACK_MEGATRON $*" >> "{project}/told"\n')
    (project / "main").mkdir()

    told = _told(project, "scripts/test", "--megatron", "main", "tests/contract", "-x")

    assert told[-1] == [str(project / "main"), "-m", "pytest", "tests/contract", "-x"]
    refused = subprocess.run(
        ["bash", "scripts/test", "--megatron", "away"], cwd=project, capture_output=True, check=False
    )
    assert refused.returncode == 1
    assert b"away" in refused.stderr


def test_packages_of_a_folder_are_found_before_the_installed_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "megatron" / "bridge").mkdir(parents=True)
    (tmp_path / "megatron_bridge-9.9.dist-info").mkdir()
    (tmp_path / "megatron_bridge-9.9.dist-info" / "METADATA").write_text("Name: megatron-bridge\nVersion: 9.9.0\n")
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    monkeypatch.setenv(installed_host.VARIABLE, str(tmp_path))

    installed_host.put_first()

    assert installed_host.host_version() == "9.9.0"
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(tmp_path), "elsewhere"]
    monkeypatch.setenv(installed_host.VARIABLE, str(tmp_path / "megatron"))
    with pytest.raises(AssertionError, match="allowed: a folder with megatron/bridge"):
        installed_host.put_first()


def test_a_failed_check_is_told_before_the_count_of_tests(project: Path) -> None:
    (project / ".venv-test/bin/mypy").write_text("#!/bin/sh\nexit 1\n")
    (project / ".venv-test/bin/python").write_text("#!/bin/sh\necho 7 passed in 3 s\n")

    done = subprocess.run(["bash", "scripts/test"], cwd=project, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stdout.endswith("failed: mypy\n7 passed in 3 s\n")
