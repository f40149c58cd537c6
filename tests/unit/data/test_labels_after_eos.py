"""Labels whose input is EOS are masked in the rows, by default, so that every release of the host trains the same."""

import json
from pathlib import Path

import numpy as np
import pytest

from bridgepack.api import check, inspect
from bridgepack.config.recipe.fingerprint import fingerprint_of_manifest
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.recipe.recorded import recorded_recipe_values
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.manifest import read_manifest
from bridgepack.data.repack import repack_artifact
from bridgepack.data.results import BuildOptions
from bridgepack.data.sequences.over_long import SequencePolicy
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.planning.preview import preview_recipe
from bridgepack.proof.verify.verify import VerifyOptions, verify_artifact
from bridgepack.records.sequences import without_labels_after_eos
from tests.support.small_builds import build, chat_row, data_bytes, dropped, small_recipe, write_json_lines
from tests.support.traced_artifacts import change_manifest

TRAIN = {"preprocessing.labels_after_eos": "train"}


@pytest.fixture
def eos(chatml_tokenizer: Path) -> int:
    return load_tokenizer(small_recipe("x", chatml_tokenizer).tokenizer).eos_token_id


@pytest.fixture
def recipe(tmp_path: Path, chatml_tokenizer: Path, eos: int) -> SFTRecipe:
    """Return a recipe for three rows of ids: a label after an inner EOS, nothing but such a label, and none."""
    ids = [[11, 12, eos, 13, 14, eos], [21, eos, 22], [31, 32, 33]]
    labels = [ids[0], [-100, -100, 22], ids[2]]
    rows = [{"input_ids": one, "labels": two} for one, two in zip(ids, labels, strict=True)]
    path = write_json_lines(tmp_path / "rows.jsonl", rows)
    return small_recipe(path, chatml_tokenizer, preprocessing={"kind": "tokenized"})


def _masks(folder: Path) -> list[list[int]]:
    artifact = Artifact(folder)
    num_packs = artifact.split("training").statistics.num_packs
    return [artifact.row("training", index).loss_mask.tolist() for index in range(num_packs)]


def _trained(folder: Path) -> int:
    return read_manifest(folder).splits[0].statistics.num_trained_tokens


def test_without_labels_after_eos() -> None:
    labels, inputs = np.array([1, 1, 1, 1, 0], dtype=np.int8), np.array([5, 2, 9, 2, 8], dtype=np.int32)

    found = without_labels_after_eos(labels, inputs, 2)

    assert found.tolist() == [1, 0, 1, 0, 0]
    assert found.dtype == np.int8


def test_rows_statistics_and_views_agree(tmp_path: Path, recipe: SFTRecipe, eos: int) -> None:
    build(recipe, tmp_path / "masked")
    build(recipe.override(TRAIN), tmp_path / "trained")

    assert _masks(tmp_path / "masked") == [[1, 1, 0, 1, 1, 0, 1, 1, 0]]
    assert _masks(tmp_path / "trained") == [[1, 1, 1, 1, 1, 0, 1, 1, 0]]
    assert (_trained(tmp_path / "masked"), _trained(tmp_path / "trained")) == (6, 7)
    assert dropped(tmp_path / "masked") == dropped(tmp_path / "trained") == [(2, "no_trained_token")]
    for folder, trained, skipped in (("masked", 4, 0), ("trained", 5, 1)):
        first = inspect(tmp_path / folder, pack=0).sequences[0]
        assert (first.num_trained_tokens, first.num_skipped_tokens) == (trained, skipped)
        assert verify_artifact(tmp_path / folder, VerifyOptions(num_packs=None)).outcome == "same"
        assert "BP348" not in {finding.code for finding in check(tmp_path / folder).findings}


def test_preview_shows_what_the_build_makes(recipe: SFTRecipe, tmp_path: Path) -> None:
    for wanted in (recipe, recipe.override(TRAIN)):
        built = build(wanted, tmp_path / "out")
        (source,) = preview_recipe(wanted).sources
        tokens, numbers = source.tokens, built.manifest.splits[0].statistics

        assert tokens is not None
        assert tokens.trained_fraction == numbers.num_trained_tokens / numbers.num_tokens
        assert sum(one.num_trained_tokens for one in source.sequences) == numbers.num_trained_tokens


@pytest.mark.parametrize("over_long", ["truncate", "split"])
def test_cut_sequences_are_masked_too(tmp_path: Path, recipe: SFTRecipe, over_long: str) -> None:
    changes = {"preprocessing.over_long": over_long, "packing.max_sequence_length": 4}
    build(recipe.override(changes), tmp_path / "out")

    assert _masks(tmp_path / "out")[0][:4] == [1, 1, 0, 1]
    assert _trained(tmp_path / "out") == sum(map(sum, _masks(tmp_path / "out")))
    assert verify_artifact(tmp_path / "out", VerifyOptions(num_packs=None)).outcome == "same"


def test_repacking_changes_it_without_tokenising(tmp_path: Path, recipe: SFTRecipe) -> None:
    build(recipe, tmp_path / "masked")
    build(recipe.override(TRAIN), tmp_path / "trained")

    found = repack_artifact(
        tmp_path / "masked", TRAIN, output=tmp_path / "repacked", options=BuildOptions(num_workers=0)
    )

    assert found.kept.num_ranges_tokenized == 0
    assert data_bytes(tmp_path / "repacked") == data_bytes(tmp_path / "trained")
    assert found.manifest.fingerprint == read_manifest(tmp_path / "trained").fingerprint


def test_rows_that_become_equal_are_duplicates(tmp_path: Path, recipe: SFTRecipe, eos: int) -> None:
    ids = [11, eos, 12, 13]
    rows = [{"input_ids": ids, "labels": labels} for labels in (ids, [11, eos, -100, 13])]
    write_json_lines(tmp_path / "rows.jsonl", rows)
    unique = {"data.deduplicate": "exact"}

    build(recipe.override(unique), tmp_path / "masked")
    build(recipe.override(unique | TRAIN), tmp_path / "trained")

    assert dropped(tmp_path / "masked") == [(2, "duplicate")]
    assert dropped(tmp_path / "trained") == []


def test_an_artifact_from_before_the_setting_is_read_as_it_is(tmp_path: Path, recipe: SFTRecipe) -> None:
    folder = tmp_path / "old"
    build(recipe.override(TRAIN), folder)
    before = read_manifest(folder)
    preprocessing = {name: value for name, value in before.recipe["preprocessing"].items() if "after_eos" not in name}
    change_manifest(folder, recipe={**before.recipe, "preprocessing": preprocessing})
    old = read_manifest(folder)

    assert "labels_after_eos" not in json.dumps(old.recipe)
    assert fingerprint_of_manifest(old) == before.fingerprint
    assert SFTRecipe.from_mapping(recorded_recipe_values(old)).preprocessing.labels_after_eos == "train"
    assert verify_artifact(folder, VerifyOptions(num_packs=None)).outcome == "same"
    assert build(recipe.override(TRAIN), folder).was_built_before
    assert not build(recipe, folder).was_built_before


def test_chats_lose_the_newline_after_a_turn_alone(tmp_path: Path, chatml_tokenizer: Path, eos: int) -> None:
    path = write_json_lines(tmp_path / "rows.jsonl", [chat_row("two words", "more words"), chat_row("a", "b")])
    recipe = small_recipe(path, chatml_tokenizer, packing={"packed_sequence_size": 512})
    for name, changes in (("masked", {}), ("trained", TRAIN)):
        build(recipe.override(changes), tmp_path / name)
    (masked,), (trained,) = _masks(tmp_path / "masked"), _masks(tmp_path / "trained")
    ids = Artifact(tmp_path / "masked").row("training", 0).input_ids

    differing = np.flatnonzero(np.array(masked) != np.array(trained))
    assert len(differing) == 2
    assert set(ids[differing].tolist()) == {eos}
    assert [trained[place] for place in differing.tolist()] == [1, 1]


def test_a_policy_keeps_the_first_token_of_a_mask(recipe: SFTRecipe) -> None:
    ids, mask = np.array([2, 5, 2, 6], dtype=np.int32), np.ones(4, dtype=np.int8)

    masked = SequencePolicy.of(recipe.resolve(), 2).mask_of_row(ids, mask)
    trained = SequencePolicy.of(recipe.override(TRAIN).resolve(), 2).mask_of_row(ids, mask)

    assert (masked.tolist(), trained.tolist()) == ([1, 0, 1, 0], [1, 1, 1, 1])
