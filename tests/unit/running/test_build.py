"""The build task: the artifact is built or found, and the run folder says where it is."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.output import staging
from bridgepack.running import build as task
from bridgepack.running.assignment import Assignment, RunFolder, encode
from tests.support.messages import mentions
from tests.support.small_builds import tokenized_recipe, tokenized_row, write_json_lines, write_recipe


@pytest.fixture
def recipe(tmp_path: Path, chatml_tokenizer: Path) -> SFTRecipe:
    rows = write_json_lines(tmp_path / "rows.jsonl", [tokenized_row(10 + index, 5, 6, 7) for index in range(20)])
    return tokenized_recipe(rows, chatml_tokenizer)


def run(recipe: SFTRecipe, folder: Path, **changes: object) -> int:
    sent = Assignment(
        recipe=recipe.override(changes) if changes else recipe,
        run_folder=RunFolder(folder / "run"),
        artifacts=str(folder / "packs"),
        launch={"run_name": "one"},
    )
    return task.main(["--assignment", encode(sent)])


def test_builds_once_then_finds(recipe: SFTRecipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(recipe, tmp_path) == 0

    place: Any = RunFolder(tmp_path / "run").read_artifact()
    assert place.path == str(tmp_path / "packs" / f"small-{place.fingerprint[:12]}")
    assert json.loads((Path(place.path) / "manifest.json").read_text())["fingerprint"] == place.fingerprint
    assert RunFolder(tmp_path / "run").read("launch.json") == {"run_name": "one"}
    assert "Built " in capsys.readouterr().out

    assert run(recipe, tmp_path) == 0
    assert "Already built, nothing " in capsys.readouterr().out
    folders = [entry.name for entry in (tmp_path / "packs").iterdir() if not entry.name.startswith(".")]
    assert folders == [Path(place.path).name]


def test_command_line_of_people(recipe: SFTRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_recipe(tmp_path / "recipe.yaml", recipe)

    assert task.main(["--recipe", "recipe.yaml", "--run-folder", "a run"]) == 0
    place: Any = RunFolder("a run").read_artifact()
    assert Path(place.path).is_absolute()
    assert Path(place.path).parent == tmp_path / "artifacts"


def test_other_packs_in_its_place_stay(recipe: SFTRecipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "own"
    assert run(recipe, tmp_path, artifact=str(own)) == 0
    before = (own / "manifest.json").read_bytes()

    assert run(recipe, tmp_path, artifact=str(own), **{"packing.seed": 7}) == 2
    said = capsys.readouterr().out
    assert "which holds another artifact" in said
    assert mentions(said, "packing.seed 1234 -> 7", "remove `artifact` from the recipe")
    assert "--replace" not in said
    assert (own / "manifest.json").read_bytes() == before


def test_mistakes_give_one_message(recipe: SFTRecipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(recipe, tmp_path, **{"data.train": str(tmp_path / "nope.jsonl")}) == 2

    assert capsys.readouterr().out.startswith("error: data.train is ")
    assert RunFolder(tmp_path / "run").read_artifact() is None


def test_waits_while_another_run_builds_the_same(
    recipe: SFTRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(task, "WAIT_S", 0.05)
    own = tmp_path / "own"
    is_held, is_done = threading.Event(), threading.Event()

    def hold() -> None:
        with staging(own):
            is_held.set()
            is_done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert is_held.wait(30)
    say = task.say

    def say_and_end(text: str) -> None:
        say(text)
        is_done.set()

    monkeypatch.setattr(task, "say", say_and_end)
    assert run(recipe, tmp_path, artifact=str(own)) == 0
    holder.join()
    output = capsys.readouterr().out
    assert output.count("waiting: another build") == 1
    assert (own / "manifest.json").is_file()
