"""The check task: its exit code keeps the training from starting, and its report is in the run folder."""

import json
from pathlib import Path

import pytest

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.rules.judging.subject import Environment
from bridgepack.running import check as task
from bridgepack.running.assignment import ArtifactPlace, Assignment, RunFolder, encode
from tests.support.messages import mentions
from tests.support.small_builds import build, tokenized_recipe, tokenized_row, write_json_lines


@pytest.fixture
def recipe(tmp_path: Path, chatml_tokenizer: Path) -> SFTRecipe:
    rows = write_json_lines(tmp_path / "rows.jsonl", [tokenized_row(10 + index, 5, 6, 7) for index in range(20)])
    return tokenized_recipe(rows, chatml_tokenizer, batch__global_batch_size=2)


@pytest.fixture
def packs(recipe: SFTRecipe, tmp_path: Path) -> Path:
    return build(recipe, tmp_path / "packs").output


def run(recipe: SFTRecipe, folder: Path, **options: object) -> int:
    given = {"world_size": 1, "judges_environment": False, **options}
    sent = Assignment(recipe=recipe, run_folder=RunFolder(folder / "run"), **given)  # type: ignore[arg-type]
    return task.main(["--assignment", encode(sent)])


def test_sound_run_passes_and_is_recorded(recipe: SFTRecipe, packs: Path, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.write_artifact(ArtifactPlace(path=str(packs), fingerprint="stale"))

    assert run(recipe, tmp_path) == 0
    report = json.loads((tmp_path / "run" / "records" / "check-001.json").read_text())
    assert report["summary"]["num_errors"] == 0
    assert report["summary"]["num_shards_read"] > 0
    place = folder.read_artifact()
    assert place is not None
    assert place.fingerprint == json.loads((packs / "manifest.json").read_text())["fingerprint"]


def test_findings_give_1(recipe: SFTRecipe, packs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(recipe.override({"packing.packed_sequence_size": 8}), tmp_path, artifact=str(packs)) == 1

    output = capsys.readouterr().out
    assert "error[BP" in output
    assert "report: " in output
    assert json.loads((tmp_path / "run" / "records" / "check-001.json").read_text())["summary"]["num_errors"] > 0
    # two packs a step cannot be shared by three copies of the model
    assert run(recipe, tmp_path, artifact=str(packs), world_size=3) == 1


def test_a_checkpoint_that_is_missing_where_the_run_will_be_gives_1(
    recipe: SFTRecipe, packs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = tmp_path / "weights"
    starting = recipe.override({"checkpoint.pretrained": str(weights)})

    assert run(starting, tmp_path, artifact=str(packs)) == 1
    output = capsys.readouterr().out
    assert "warning[BP861]" in output
    assert mentions(output, "does not start", "checkpoint.pretrained")
    weights.mkdir()
    (weights / "latest_checkpointed_iteration.txt").touch()
    assert run(starting, tmp_path, artifact=str(packs)) == 0


def test_environment_of_a_task(recipe: SFTRecipe, packs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Environment(versions={"megatron-bridge": "0.6.1"}, python="3.12.1", origin="test")
    monkeypatch.setattr(task, "environment_here", lambda: broken)

    assert run(recipe, tmp_path, artifact=str(packs), judges_environment=True) == 1
    assert run(recipe, tmp_path, artifact=str(packs), judges_environment=False) == 0


def test_missing_packs_give_2(recipe: SFTRecipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(recipe, tmp_path, artifact=str(tmp_path / "nope")) == 2
    assert "error: " in capsys.readouterr().out
