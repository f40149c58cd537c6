"""The folder of a run: files that are whole, records that are never overwritten, mistakes in one message."""

from pathlib import Path

import pytest

from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.running.assignment import ArtifactPlace, RunFolder
from tests.support.catalogue import SMALL


def test_a_recipe_comes_back(tmp_path: Path) -> None:
    folder, recipe = RunFolder(tmp_path / "runs" / "mine"), SFTRecipe.from_mapping(SMALL)
    written = folder.write_recipe(recipe)

    assert written == tmp_path / "runs" / "mine" / "recipe.yaml"
    assert load_recipe(written) == recipe


def test_facts_come_back_and_are_replaced(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert (folder.read_artifact(), folder.read("run.json")) == (None, None)

    folder.write_artifact(ArtifactPlace(path="/packs/old", fingerprint="91bc"))
    folder.write_artifact(ArtifactPlace(path="/packs/mine", fingerprint="3f2a"))
    folder.write("run.json", {"world_size": 8})
    folder.write("launch.json", {"git": "abc"})

    assert folder.read_artifact() == ArtifactPlace(path="/packs/mine", fingerprint="3f2a")
    assert folder.read("run.json") == {"world_size": 8}
    assert folder.read("launch.json") == {"git": "abc"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["artifact.json", "launch.json", "run.json"]


def test_records_are_counted_by_kind(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    first, second = folder.add_record("check", {"errors": 0}), folder.add_record("check", {"errors": 1})
    other = folder.add_record("guard-violation", {"step": 3})

    assert [path.name for path in (first, second, other)] == [
        "check-001.json",
        "check-002.json",
        "guard-violation-001.json",
    ]
    assert folder.records("check") == [first, second]
    assert folder.records("guard") == []


def test_a_record_that_was_removed_is_not_written_over(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    first, second = folder.add_record("check", {"errors": 0}), folder.add_record("check", {"errors": 1})
    first.unlink()
    third = folder.add_record("check", {"errors": 2})

    assert third.name == "check-003.json"
    assert second.is_file()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("artifact.json", "{", "cannot be read"),
        ("artifact.json", "[]", "is not a JSON object"),
        ("artifact.json", '{"path": 3}', "has no path and fingerprint"),
        ("artifact.json", "\xff", "cannot be read"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_bytes(text.encode("latin-1"))

    with pytest.raises(ConfigError, match=message) as raised:
        RunFolder(tmp_path).read_artifact()
    assert name in str(raised.value)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match="cannot be written there"):
        RunFolder(tmp_path / "file" / "run").write("run.json", {})
