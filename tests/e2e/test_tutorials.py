"""The README, the tutorials and pages of tasks, word for word: their commands run in order and print what is shown."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bridgepack
from bridgepack.examples.__main__ import write_examples
from tests.e2e.test_quickstart import add_environment, copy_project
from tests.support import host_forks
from tests.support.docs_blocks import PROJECT, RUN_PAGES
from tests.support.messages import mentions

pytestmark = pytest.mark.full
_BLOCK = re.compile(r"^```(bash|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: `python - <<END` and `python -m MODULE` in a fork.
_PYTHON = """#!/bin/sh
if [ "$1" = - ]; then
  cat > .script.py
  {forked} tests.support.forked_script .script.py
fi
shift
{forked} "$@"
"""
_ACTIVATE = 'export PATH="$PWD/.venv/bin:$PATH"\n'


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder as scripts/quickstart leaves it, with fewer conversations.

    Its command runs in forks that have the libraries; that one in a process alone works, test_quickstart.py asks.
    """
    host_forks.hold()
    folder = copy_project(tmp_path_factory.mktemp("tutorials"))
    add_environment(folder)
    (folder / ".venv/bin/activate").write_text(_ACTIVATE)
    forked = f'PYTHONPATH={PROJECT} exec "{sys.executable}" -m tests.support.host_forks'
    (folder / ".venv/bin/bridgepack").write_text(f'#!/bin/sh\n{forked} tests.support.forked_command "$@"\n')
    (folder / ".venv/bin/python").write_text(_PYTHON.format(forked=forked))
    write_examples(folder / "quickstart", limit=2500, vocab_size=8192)
    return folder


def _run(script: str, folder: Path) -> str:
    values = {**os.environ, "HF_HUB_OFFLINE": "1", "NEMORUN_HOME": str(folder / "nemo-run")}
    command = ["bash", "-euo", "pipefail", "-c", _ACTIVATE + script]
    done = subprocess.run(command, cwd=folder, env=values, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _missing(shown: str, printed: str) -> list[str]:
    """Return the lines shown that are not printed in this order; where `...` stands anything may be between."""
    missing, rest = [], printed
    for line in shown.splitlines():
        if line in {"", "..."}:
            continue
        _, found, after = rest.partition(line)
        if not found:
            missing.append(line)
        rest = after if found else rest
    return missing


@pytest.mark.parametrize("name", RUN_PAGES)
def test_page_runs_as_it_is_written(project: Path, name: str) -> None:
    printed, num_shown = "", 0
    for language, text in _BLOCK.findall((PROJECT / name).read_text(encoding="utf-8")):
        if language == "bash":
            printed = _run(text, project)
        else:
            assert _missing(text, printed) == [], printed
            num_shown += 1

    assert num_shown > 0
    if name == "docs/tutorials/losses.md":
        _assert_planted_rows_stand_out(project)


def _assert_planted_rows_stand_out(project: Path) -> None:
    """The tutorial's figures: the source with shuffled answers is the higher one, and 8 of 10 bad rows are named."""
    report = bridgepack.losses(project / "runs/colours", artifact=project / "artifacts/colours", num_rows=20)
    last = {source: line.loss for (_, source), (_, line) in report.last_losses().items()}
    assert last["cars"] > last["furniture"] + 0.15, last
    rows = {row.row for row in report.rows if row.file.endswith("furniture.jsonl")}
    assert len(rows & set(range(11, 161, 15))) >= 8, [(row.file, row.row, row.loss) for row in report.rows]


def test_readme_runs_as_it_is_written(project: Path) -> None:
    text = (PROJECT / "README.md").read_text(encoding="utf-8")
    commands = [block for language, block in _BLOCK.findall(text) if language == "bash"]
    assert commands[0].startswith("scripts/quickstart\nsource .venv/bin/activate\n")
    own, launch = commands[1:3], commands[-1]
    for block in own:
        printed = _run(block, project)
    assert "rows dropped" in printed
    manifest = json.loads((project / "artifacts/mine/manifest.json").read_text())
    for name in ("packed_sequence_size", "pad_seq_to_mult"):
        assert re.findall(rf"    {name}=(\d+),", text) == [str(manifest[name])]
    installed, separator, rest = launch.partition("cat > cluster.yaml")
    assert re.match(r'uv pip install -e "\.\[launch\]"', installed)
    assert mentions(_run(separator + rest, project), "build on slurm, ", "check on slurm, ", "train on slurm")


def test_missing_lines_are_found() -> None:
    assert _missing("a\n...\nc\n", "a\nb\nc\n") == []
    assert _missing("c\na\n", "a\nb\nc\n") == ["a"]
