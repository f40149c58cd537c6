"""The hooks for pre-commit, run by the real pre-commit on a repository of a user's."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.docs_blocks import PROJECT

pytestmark = pytest.mark.full

GOOD = """\
name: mine
data: {train: rows.jsonl}
tokenizer: {name_or_path: tokenizer}
packing: {packed_sequence_size: 4096, pad_seq_to_mult: 8}
parallelism: {context_parallel_size: 4}
batch: {global_batch_size: 8}
"""
MENDABLE = GOOD.replace("pad_seq_to_mult: 8", "pad_seq_to_mult: 2")
#: Variables with which pip builds the project from what is here.
OFFLINE_PIP = {
    "PYTHONPATH": sysconfig.get_path("purelib"),  # all but the project itself
    "PIP_NO_INDEX": "1",
    "PIP_NO_BUILD_ISOLATION": "0",  # which is how pip spells: without isolation
    "PIP_NO_DEPS": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}
OTHER_TOOLS = {"mkdocs.yml": "site_name: x\n", "templated.yaml": "{{ if x }}\n- a: [\n", "pyproject.toml": "[a]\n"}


def _git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _committed(folder: Path) -> str:
    _git(folder, "init", "--quiet")
    _git(folder, "add", "--all")
    _git(folder, "commit", "--quiet", "--message", "all")
    return _git(folder, "rev-parse", "HEAD")


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return a repository with bridgepack as it is, and its commit."""
    folder = tmp_path_factory.mktemp("bridgepack")
    for name in ("src", "recipes", "scripts"):
        shutil.copytree(PROJECT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".pre-commit-hooks.yaml"):
        shutil.copy(PROJECT / name, folder)
    return folder, _committed(folder)


@pytest.fixture
def repository(tmp_path: Path, hooks: tuple[Path, str]) -> Path:
    place, commit = hooks
    (tmp_path / ".pre-commit-config.yaml").write_text(
        f"repos:\n- repo: {place}\n  rev: {commit}\n  hooks:\n  - id: bridgepack-check\n  - id: bridgepack-fix\n"
    )
    for name, text in OTHER_TOOLS.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def _ran(repository: Path, cache: Path, hook: str) -> subprocess.CompletedProcess[str]:
    """Run a hook on all files; pip builds bridgepack into the hook's own environment; the rest is here."""
    _committed(repository)
    environment = {
        **os.environ,
        **OFFLINE_PIP,
        "PRE_COMMIT_HOME": str(cache),
        "PRE_COMMIT_COLOR": "never",
    }
    command = [sys.executable, "-m", "pre_commit", "run", hook, "--all-files", "--verbose"]
    return subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def test_check_passes_and_fails(repository: Path, cache: Path) -> None:
    (repository / "mine.yaml").write_text(GOOD)
    passed = _ran(repository, cache, "bridgepack-check")
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert "Passed" in passed.stdout
    assert "templated" not in passed.stdout

    (repository / "second.toml").write_text('name = "a"\n[data]\ntrain = "x"\n[packing]\npacked_sequence_sze = 1\n')
    (repository / "third.yaml").write_text(MENDABLE)
    failed = _ran(repository, cache, "bridgepack-check")
    assert failed.returncode == 1
    assert "- exit code: 2" in failed.stdout
    assert "error: second.toml: " in failed.stdout
    assert "--> third.yaml:4: packing.pad_seq_to_mult" in failed.stdout


def test_fix_writes_the_change(repository: Path, cache: Path) -> None:
    (repository / "mine.yaml").write_text(MENDABLE)
    fixed = _ran(repository, cache, "bridgepack-fix")
    assert fixed.returncode == 1
    assert "- files were modified by" in fixed.stdout
    assert (repository / "mine.yaml").read_text() == GOOD

    assert _ran(repository, cache, "bridgepack-fix").returncode == 0
