"""A recipe in Python: its code runs once in each command, in whatever process, since it may do anything."""

import json
from pathlib import Path
from typing import Any

import pytest

import bridgepack
from tests.support.launches import launch_recipe
from tests.support.small_builds import Command, environment

_CODE = """\
from pathlib import Path

from bridgepack import SFTRecipe


def log(what):
    with Path({log!r}).open("a") as file:
        file.write(what + "\\n")


log("module")


def mine_recipe() -> SFTRecipe:
    log("function")
    return SFTRecipe.from_mapping({fields!r})
"""
_ONCE = ["module", "function"]


class Log:
    """What the recipe's code wrote since the last look."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[str]:
        found = self.path.read_text().splitlines() if self.path.exists() else []
        self.path.write_text("")
        return found


@pytest.fixture
def log(tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    """Write the recipe `mine.py`, whose name is also that of a folder, and return its log."""
    monkeypatch.chdir(tmp_path)
    fields = launch_recipe(tmp_path, chatml_tokenizer).model_dump(mode="json", exclude_unset=True)
    (tmp_path / "mine.py").write_text(_CODE.format(log=str(tmp_path / "log"), fields=fields))
    return Log(tmp_path / "log")


@pytest.mark.parametrize(
    "words",
    [
        "build mine.py --num-workers 1",
        "build mine.py --num-workers 2 --check",
        "build mine.py:mine_recipe --num-workers 1 --check --report --set packing.seed=3",
        "build mine.py --dry-run",
        "check mine.py",
        "check mine.py --set batch.global_batch_size=1 --format sarif",
        "check mine.py --fix --set batch.micro_batch_size=2",
        "check mine.py --diff --set batch.micro_batch_size=2",
        "preview mine.py",
        "plan mine.py --num-gpus 8",
        "prove masks mine.py",
        pytest.param("prove training mine.py --device gpu", marks=[pytest.mark.bridge, pytest.mark.full]),
        "recipes show mine.py",
        "recipes show mine.py --resolved --json",
        "launch mine.py --cluster local --dry-run",
        "launch mine.py --cluster local --set batch.micro_batch_size=2",
    ],
)
def test_each_command_runs_a_recipe_s_code_once(
    log: Log, command: Command, words: str, request: pytest.FixtureRequest
) -> None:
    if "training" in words:
        request.getfixturevalue("asks_in_forks")
    command(*words.split())

    assert log.lines() == _ONCE


@pytest.mark.parametrize(
    "words",
    ["build mine.py --check", "build mine.py --dry-run", "check mine.py", "preview mine.py", "prove masks mine.py"],
)
def test_what_a_recipe_prints_is_not_in_the_json(log: Log, command: Command, words: str) -> None:
    code = Path("mine.py").read_text().replace('    log("function")\n', '    print("hello")\n')
    Path("mine.py").write_text(code)
    ran = command(*words.split(), "--json")

    assert json.loads(ran.output)
    assert "hello" in ran.errors


def test_a_build_that_checks_takes_the_recipe_of_a_file_that_has_a_config_too(log: Log, command: Command) -> None:
    with Path("mine.py").open("a") as file:
        file.write("\n\ndef mine_config():\n    raise ValueError('not asked for')\n")

    assert command("build", "mine.py", "--num-workers", "1", "--check").code == 0


@pytest.mark.bridge
@pytest.mark.usefixtures("nemo_home")
def test_a_launch_runs_a_recipe_s_code_once_and_its_tasks_do_not(
    log: Log, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", environment(tmp_path)["PYTHONPATH"])
    ran = command("launch", "mine.py", "--cluster", "local", "--skip", "train")

    assert (ran.code, log.lines()) == (0, _ONCE)


def test_a_report_and_a_trace_take_the_recipe_from_the_artifact(log: Log, command: Command) -> None:
    assert command("build", "mine.py", "--output", "packed", "--num-workers", "1").code == 0
    assert log.lines() == _ONCE
    for words in ("report packed", "check packed", "trace packed --pack 0", "inspect packed", "prove sources packed"):
        assert command(*words.split()).code == 0, words
    assert log.lines() == []
    assert command("trace", "packed", "--pack", "0", "--recipe", "mine.py").code == 0
    assert log.lines() == _ONCE


def test_functions_run_a_recipe_s_code_once(log: Log, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"input_ids": [10 + index, 5, 6], "labels": [-100, 5, 6]} for index in range(9)]
    overrides = {"data.train": rows, "batch.global_batch_size": 1}
    for call in (
        lambda: bridgepack.build("mine.py", overrides=overrides, output="packed"),
        lambda: bridgepack.check("mine.py", overrides=overrides, artifact="packed"),
        lambda: bridgepack.preview("mine.py", overrides=overrides),
        lambda: bridgepack.prove.masks("mine.py", overrides=overrides),
        lambda: bridgepack.plan("mine.py", overrides=overrides, num_gpus=8),
    ):
        call()
        assert log.lines() == _ONCE
