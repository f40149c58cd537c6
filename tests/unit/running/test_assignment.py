"""What a task of a launch is told: it arrives whole, whatever is in it, and is refused where it is none."""

import re
from pathlib import Path
from string import Template
from typing import Any

import pytest

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.running import assignment
from bridgepack.running.assignment import ArtifactPlace, Assignment, RunFolder, assignment_of, decode, encode
from tests.support.catalogue import SMALL

#: What shells, YAML, JSON and torchx's macros each take for something else.
HOSTILE = "a b/'c' \"d\" $HOME ${img_root} `e` #f: *g\nü\t|>&;\\h"


def small(**sections: Any) -> SFTRecipe:
    return SFTRecipe.from_mapping({**SMALL, **sections})


def full(folder: Path) -> Assignment:
    return Assignment(
        recipe=small(data={"train": HOSTILE}, ignore={"BP984": HOSTILE}),
        run_folder=RunFolder(folder / HOSTILE.replace("/", "")),
        artifacts=HOSTILE,
        artifact=HOSTILE,
        world_size=16,
        judges_environment=False,
        launch={"git": {"commit": "abc", "is_dirty": True}, "recipe": HOSTILE},
    )


def test_everything_arrives_in_a_word_that_means_itself_to_shells_and_macros(tmp_path: Path) -> None:
    sent = full(tmp_path)
    word = encode(sent)
    found = decode(word)

    assert (found.recipe, found.run_folder.path, found.launch) == (sent.recipe, sent.run_folder.path, sent.launch)
    assert (found.artifacts, found.artifact, found.world_size) == (HOSTILE, HOSTILE, 16)
    assert found.judges_environment is False
    assert re.fullmatch(r"[A-Za-z0-9_=-]+", word)
    assert Template(word).safe_substitute(img_root="/") == word
    path = tmp_path / "caf\udce9"
    assert decode(encode(Assignment(recipe=small(), run_folder=RunFolder(path)))).run_folder.path == path


def test_more_than_an_argument_can_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "MAX_ARGUMENT_BYTES", 100)

    with pytest.raises(ConfigError, match=r"recipe 'small' takes [\d,]+ bytes .*allowed: 100\. Move long values"):
        encode(Assignment(recipe=small(), run_folder=RunFolder(tmp_path)))


@pytest.mark.parametrize("word", ["", "nonsense!", "aGVsbG8=", "eJwDAAAAAAE="])
def test_other_words_and_versions_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    with pytest.raises(ConfigError, match=r"--assignment .*Launch the run again|has format version None"):
        decode(word)
    word = encode(full(tmp_path))
    monkeypatch.setattr(assignment, "FORMAT_VERSION", 2)

    with pytest.raises(ConfigError, match=r"has format version 1; this bridgepack reads 2. Install the same version"):
        decode(word)


def test_command_line_of_people(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(
        "{name: mine, data: {train: a.jsonl}, tokenizer: {name_or_path: t}, packing: {packed_sequence_size: 64}}"
    )
    line = ["--recipe", str(tmp_path / "recipe.yaml"), "--run-folder", "run", "--artifacts-in", "packs"]
    found = assignment_of([*line, "--artifact", "there", "--world-size", "2"], program="p", description="d")

    assert (found.recipe.name, found.world_size, found.judges_environment) == ("mine", 2, True)
    assert (str(found.run_folder.path), found.artifacts, found.artifact) == ("run", "packs", "there")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ([], "one of the arguments --assignment --recipe is required"),
        (["--recipe", "r.yaml"], "--recipe needs --run-folder FOLDER"),
        (["--assignment", "x", "--run-folder", "y"], "remove the others"),
        (["--assignment", "x", "--recipe", "y"], "not allowed with argument"),
        (["--assign", "x"], "required"),
    ],
)
def test_wrong_command_lines_are_explained(line: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        assignment_of(line, program="python -m task", description="d")

    assert exited.value.code == 2
    assert message in capsys.readouterr().err


def test_settings_that_plugins_add_reach_megatron_bridge(tmp_path: Path) -> None:
    word = encode(Assignment(recipe=small(), run_folder=RunFolder(tmp_path)))
    added = ["profiling.use_nsys_profiler=true", "profiling.profile_ranks=[0]", "+ft.enable_ft_package=true"]
    found = assignment_of(["--assignment", word, *added], program="p", description="d")

    assert found.recipe.bridge_overrides == {
        "profiling": {"use_nsys_profiler": True, "profile_ranks": [0]},
        "ft": {"enable_ft_package": True},
    }
    with pytest.raises(ConfigError, match="the argument 'nonsense'; allowed: path=value"):
        assignment_of(["--assignment", word, "nonsense"], program="p", description="d")


def test_artifact_is_what_is_told_then_what_was_built_then_the_recipe_s(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    own = small(artifact="own")
    with pytest.raises(ConfigError, match=r"no build .*artifact\.json"):
        assignment.artifact_of(Assignment(recipe=small(), run_folder=folder))

    assert assignment.artifact_of(Assignment(recipe=own, run_folder=folder)) == Path("own")
    folder.write_artifact(ArtifactPlace(path="built", fingerprint="f"))
    assert assignment.artifact_of(Assignment(recipe=own, run_folder=folder)) == Path("built")
    assert assignment.artifact_of(Assignment(recipe=own, run_folder=folder, artifact="told")) == Path("told")
