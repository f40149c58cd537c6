"""Plan and preview cut a sample of conversations between exchanges as a build does, and say what it costs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.plan import iter_plan_columns
from bridgepack.planning.lengths import lengths_of, pack_lengths
from bridgepack.planning.preview import preview_recipe
from bridgepack.records import TRAIN
from bridgepack.reporting.results.previews import preview_blocks
from bridgepack.reporting.screen import screen
from tests.support import small_builds as small
from tests.support import thoughtful
from tests.support.messages import mentions
from tests.support.thoughtful import said
from tests.zoo import exchanges
from tests.zoo.tokenizers import write_tokenizer

CUTS = ["truncate_history", "split_exchanges"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("exchanges"), exchanges.FAMILIES["exchanges"])


def _recipe(folder: Path, tokenizer: Path, action: str, size: int) -> Any:
    """Return a recipe for conversations with a system prompt, a question at the end, and one that no length takes."""
    rows = []
    for number in range(40):
        turns = [said("system", "answer in one line")]
        for exchange in range(1 + number % 9):
            turns += [said("user", f"ask {exchange}"), said("assistant", "word " * (1 + number % 5))]
        rows.append([*turns, said("user", "and then")] if number % 6 == 0 else turns)
    rows.append([said("user", "x"), said("assistant", "long " * 200)])
    source = thoughtful.write_rows(folder / "a.jsonl", rows)
    packing = {"packed_sequence_size": size}
    return small.small_recipe(source, tokenizer, preprocessing={"kind": "chat", "over_long": action}, packing=packing)


@pytest.mark.parametrize("action", CUTS)
def test_the_packs_of_a_plan_are_those_of_builds(tmp_path: Path, tokenizer: Path, action: str) -> None:
    recipe = _recipe(tmp_path, tokenizer, action, 64)
    lengths = lengths_of(recipe, sizes=(64, 128, 4096))
    assert "cut as by a" in lengths.origin
    assert set(lengths.cuts) == {64, 128}
    whole = small.build(recipe.override({"packing.packed_sequence_size": 4096}), tmp_path / "whole").manifest

    for size in (64, 128):
        sized = recipe.override({"packing.packed_sequence_size": size})
        packs = pack_lengths(lengths, sized, 1)
        built = small.build(sized, tmp_path / str(size))

        (found,) = zip(*iter_plan_columns(Artifact(built.output), TRAIN, ("runtime_length",)), strict=True)
        assert sorted(np.concatenate(packs.packs).tolist()) == sorted(np.concatenate(found).tolist())
        cut, uncut = built.manifest.splits[0].statistics, whole.splits[0].statistics
        assert (packs.num_packs, packs.num_tokens) == (cut.num_packs, cut.num_tokens)
        assert packs.lost_fraction == pytest.approx(1 - cut.num_trained_tokens / uncut.num_trained_tokens)
        assert packs.added_fraction == pytest.approx(max(cut.num_tokens / uncut.num_tokens - 1, 0))
        assert (packs.lost_fraction > 0, packs.added_fraction > 0) == (
            (True, False) if action == "truncate_history" else (False, True)
        )
    of_artifact = lengths_of(recipe, artifact=tmp_path / "64")
    assert "; sequences that were cut" in of_artifact.origin
    assert "stays" not in lengths_of(recipe, artifact=tmp_path / "whole").origin
    assert pack_lengths(lengths, recipe.override({"packing.packed_sequence_size": 4096}), 1).lost_fraction == 0


@pytest.mark.parametrize("action", CUTS)
def test_a_preview_says_what_it_costs(tmp_path: Path, tokenizer: Path, action: str) -> None:
    recipe = _recipe(tmp_path, tokenizer, action, 64)
    cut, uncut = (
        small.build(recipe.override({"packing.packed_sequence_size": size}), tmp_path / str(size)).manifest.splits[0]
        for size in (64, 4096)
    )

    preview = preview_recipe(recipe)

    tokens = preview.sources[0].tokens
    assert tokens is not None
    lost = 1 - cut.statistics.num_trained_tokens / uncut.statistics.num_trained_tokens
    added = max(cut.statistics.num_tokens / uncut.statistics.num_tokens - 1, 0)
    assert (tokens.lost_fraction, tokens.added_fraction) == (pytest.approx(lost), pytest.approx(added))
    assert preview.num_packs == {TRAIN: cut.statistics.num_packs}
    text = screen(preview_blocks(preview))
    if action == "truncate_history":
        assert mentions(text, f"cut between exchanges {lost:.1%}", " of the trained tokens")
    else:
        assert mentions(text, "sequences per row, ", f"{added:.0%} more tokens ")
