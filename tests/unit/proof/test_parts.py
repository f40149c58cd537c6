"""`prove TARGET`: which parts are asked, how each came out, and the exit code of all."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from scripts.quirks.served_rows import SETS

import bridgepack
from bridgepack.errors import ArtifactError, ConfigError
from tests.support import small_builds as small
from tests.support.messages import mentions
from tests.support.small_builds import Command
from tests.zoo.families import write_tokenizer
from tests.zoo.served import SERVED_FAMILIES

QWEN_3 = next(family for family in SERVED_FAMILIES if family.name == "Qwen3")

ASKED = ("sources", "masks", "served")


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a recipe and its artifact; the template strips the first of two thoughts."""
    folder = tmp_path_factory.mktemp("chats")
    train = small.write_json_lines(folder / "rows.jsonl", [SETS["thoughts"]] * 3)
    recipe = small.small_recipe(
        train,
        write_tokenizer(folder / "tokenizer", QWEN_3),
        preprocessing={"kind": "chat"},
        packing={"packed_sequence_size": 256},
    )
    small.write_recipe(folder / "mine.yaml", recipe)
    small.build(recipe, folder / "packed")
    return folder


@pytest.fixture
def ids(tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with an artifact of token ids."""
    monkeypatch.chdir(tmp_path)
    rows = small.write_json_lines(tmp_path / "ids.jsonl", [small.tokenized_row(5, 6, 7), small.tokenized_row(8, 9)])
    small.build(small.tokenized_recipe(rows, chatml_tokenizer), tmp_path / "packed")
    return tmp_path


def _outcomes(proof: Any) -> dict[str, str]:
    return {name: part.outcome for name, part in proof.parts.items()}


def test_an_artifact_is_asked_for_its_sources_its_masks_and_what_is_served(chats: Path, command: Command) -> None:
    proof = bridgepack.prove(chats / "packed")

    assert _outcomes(proof) == {
        "sources": "passed",
        "masks": "passed",
        "served": "findings",
        "training": "not asked",
    }
    assert proof.outcome == "findings"
    ran = command("prove", chats / "packed")
    assert ran.code == 1
    table = ran.output.rstrip("\n").rpartition("\n\n")[2].splitlines()
    assert [line.split()[0] for line in table[1:]] == [*proof.parts]
    assert f"`bridgepack prove training {chats / 'packed'}`" in table[-1]
    parts = json.loads(command("prove", chats / "packed", "--json").output)
    assert parts.keys() == {"target", "outcome", *proof.parts}
    assert {name: parts[name]["outcome"] for name in proof.parts} == _outcomes(proof)
    alone = {name: json.loads(command("prove", name, chats / "packed", "--json").output) for name in ASKED}
    assert {name: parts[name]["report"] for name in ASKED} == alone


def test_a_recipe_has_no_packs_to_compare_with_its_sources(chats: Path, command: Command) -> None:
    proof = bridgepack.prove(chats / "mine.yaml", overrides={"preprocessing.loss_mode": "last_turn"})

    assert _outcomes(proof) == {"sources": "not asked", "masks": "passed", "served": "passed", "training": "not asked"}
    ran = command("prove", chats / "mine.yaml", "--set", "preprocessing.loss_mode=last_turn", "--all")
    assert ran.code == 0
    assert mentions(ran.output, "sources   not asked      because ", " no packs")


def test_an_artifact_of_token_ids_is_not_asked_what_is_served(ids: Path, command: Command) -> None:
    proof = bridgepack.prove("packed")

    assert (proof.parts["served"].outcome, proof.outcome) == ("not asked", "passed")
    assert "preprocessing.kind is tokenized" in proof.parts["served"].detail
    assert command("prove", "packed").code == 0


def test_missing_sources_are_no_findings(ids: Path, command: Command) -> None:
    (ids / "ids.jsonl").rename(ids / "moved.jsonl")
    proof = bridgepack.prove("packed")

    assert {name: proof.parts[name].outcome for name in ("sources", "masks")} == {
        "sources": "could not run",
        "masks": "could not run",
    }
    assert "ids.jsonl" in proof.parts["masks"].detail
    assert command("prove", "packed").code == 2
    assert command("prove", "packed", "--set", "data.train=moved.jsonl").code == 0


def test_findings_of_one_part_count_more_than_a_part_that_could_not_run(ids: Path, command: Command) -> None:
    (shard,) = (ids / "packed" / "training").glob("*.parquet")
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    proof = bridgepack.prove("packed")

    assert proof.parts["sources"].outcome == "findings"
    assert command("prove", "packed").code == 1


def test_the_serving_section_is_for_what_is_served_alone(chats: Path) -> None:
    parts = bridgepack.prove(chats / "packed", overrides={"serving.system": "Be kind."}).parts
    served = bridgepack.prove.served(chats / "packed", overrides={"serving.system": "Be kind."})

    assert (parts["sources"].outcome, parts["masks"].outcome) == ("passed", "passed")
    assert parts["served"].report == served


def test_mistakes_are_errors_and_no_outcomes(chats: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"packing\.seed.* location of its sources"):
        bridgepack.prove(chats / "packed", overrides={"packing.seed": 3})
    with pytest.raises(ConfigError, match=r"none.*No such file"):
        bridgepack.prove("none")
    with pytest.raises(ArtifactError):
        bridgepack.prove(tmp_path)
    with pytest.raises(ConfigError, match="num_rows is 0"):
        bridgepack.prove("none", num_rows=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sources"], "Missing argument 'ARTIFACT'"),
        (["--json", "sources"], "'sources' is a part"),
        (["packed", "--all", "--num-rows", "3"], "--all and --num-rows contradict each other"),
        ([], "Usage: bridgepack prove TARGET"),
        (["sourcs", "packed"], "No such part 'sourcs'. Did you mean 'sources'?"),
        (["packed", "other"], "Got unexpected extra argument (other)"),
    ],
)
def test_the_name_of_a_part_wins_over_a_folder(ids: Path, command: Command, arguments: list[str], message: str) -> None:
    shutil.copytree(ids / "packed", ids / "sources")
    ran = command("prove", *arguments)

    assert ran.code == 2
    assert message in ran.output + ran.errors
    assert command("prove", "./sources").code == 0
