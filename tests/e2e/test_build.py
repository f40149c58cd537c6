"""The command as users run it: a process of its own, pipes, other encodings, Python recipes, several workers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.small_builds import CLI, chat_row, environment, run_cli, run_command, write_json_lines

RECIPE = """\
from bridgepack import SFTRecipe

def small_chat_recipe():
    return SFTRecipe.from_mapping({{
        "name": "small",
        "data": {{"train": "data", "validation_fraction": 0.2}},
        "tokenizer": {{"name_or_path": {tokenizer!r}}},
        "packing": {{"packed_sequence_size": 128}},
    }})
"""
SCRIPT = """\
import bridgepack

if __name__ == "__main__":
    result = bridgepack.build("recipe.py", output="from-python", overrides={"packing.seed": 7}, num_workers=2)
    report = bridgepack.check(result.output)
    view = bridgepack.inspect(result.output, pack=0, split="validation")
    print(result.was_built_before, report.has_errors, len(view.sequences) > 0)
"""


@pytest.fixture
def project(tmp_path: Path, chatml_tokenizer: Path) -> Path:
    """Return a folder with two files of chats and a recipe in Python."""
    for part in range(2):
        rows = [chat_row(f"Frage {part} {index}?", "Ja, natürlich. 😀 " * (index % 4 + 1)) for index in range(60)]
        write_json_lines(tmp_path / "data" / f"{part}.jsonl", rows)
    (tmp_path / "recipe.py").write_text(RECIPE.format(tokenizer=str(chatml_tokenizer)))
    return tmp_path


def test_build_check_and_inspect(project: Path) -> None:
    built = run_cli(project, "build", "recipe.py:small_chat_recipe", "--output", "out", "--json")
    checked = run_cli(project, "check", "out")
    drawn = run_cli(project, "inspect", "out", "--pack", "0", PYTHONIOENCODING="latin-1")

    assert [(ran.returncode, ran.stderr) for ran in (built, checked, drawn)] == [(0, "")] * 3
    summary = json.loads(built.stdout)
    assert sum(split["statistics"]["num_rows_in"] for split in summary["splits"]) == 120
    assert [record["num_rows"] for record in summary["splits"][0]["inputs"]] == [60, 60]
    assert "\\u27e6Ja, nat\\xfcrlich. \\U0001f600" in drawn.stdout


@pytest.mark.full
def test_python_script_with_workers(project: Path) -> None:
    (project / "script.py").write_text(SCRIPT)

    ran = run_command(project, sys.executable, "script.py")

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "False False True\n", "")


@pytest.mark.full
def test_reader_that_goes_away_is_no_error(project: Path) -> None:
    assert run_cli(project, "build", "recipe.py", "--output", "out").returncode == 0
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [*CLI, "inspect", "out", "--json"]
    with subprocess.Popen(command, cwd=project, env=environment(project), **pipes) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, errors = process.communicate(timeout=60)

    assert (process.returncode, errors) == (0, b"")
