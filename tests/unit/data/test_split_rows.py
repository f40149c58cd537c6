"""Rows that become several sequences, and rows given twice: what stays, what proves it, what the counts say."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridgepack.api import check, inspect
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.reading import lines as line_blocks
from bridgepack.data.repack import repack_artifact
from bridgepack.data.results import BuildOptions
from bridgepack.errors import DataError
from bridgepack.proof.diff.diff import diff_artifacts
from bridgepack.proof.packs import RunOptions, TracedRun
from bridgepack.proof.trace.trace import trace_source
from bridgepack.proof.verify.verify import VerifyOptions, verify_artifact
from bridgepack.records import Manifest
from bridgepack.reporting.results.traces import source_trace_blocks
from bridgepack.reporting.screen import screen
from tests.support import small_builds as small
from tests.support.messages import mentions

#: Row 1 becomes two pieces behind one that only has context; row 2 stays whole; row 3 trains nothing.
ROWS = [
    small.tokenized_row(*range(10, 22), num_prompt=5),
    small.tokenized_row(30, 31, 32),
    small.tokenized_row(*range(40, 50), num_prompt=10),
]
SPLIT = {"preprocessing__over_long": "split", "packing__max_sequence_length": 4}


@pytest.fixture
def artifact(tmp_path: Path, chatml_tokenizer: Path) -> Path:
    recipe = small.tokenized_recipe(small.write_json_lines(tmp_path / "a.jsonl", ROWS), chatml_tokenizer, **SPLIT)
    return small.build(recipe, tmp_path / "out").output


def test_every_command_knows_the_row_of_a_piece(artifact: Path) -> None:
    run = TracedRun(Artifact(artifact), RunOptions(overrides={"batch.global_batch_size": 1}))
    trace = trace_source(run, "a.jsonl", 1, limit=1)

    assert [placement.sequence.first_token for placement in trace.placements] == [4, 8]
    assert "a.jsonl row 1 from token 8" in screen(source_trace_blocks(trace))
    assert sorted(item.row or 0 for item in inspect(artifact, pack=0).sequences) == [1, 1, 2]
    assert {finding.code for finding in check(artifact).findings if finding.severity == "error"} == {"BP543"}
    for options in (VerifyOptions(), VerifyOptions(num_packs=None)):
        assert verify_artifact(artifact, options).outcome == "same"
    same = diff_artifacts(artifact, artifact).splits[0]
    assert (same.num_unchanged, same.num_lost, same.num_gained) == (3, 0, 0)
    shorter = repack_artifact(artifact, {"packing.max_sequence_length": 3}, options=BuildOptions(num_workers=0)).output
    other = diff_artifacts(artifact, shorter).splits[0]
    assert (other.num_unchanged, other.num_lost + other.num_retokenized) == (1, 2)


def test_a_piece_that_was_changed_is_found(artifact: Path, tmp_path: Path) -> None:
    rows = [small.tokenized_row(*range(10, 20), 99, 21, num_prompt=5), *ROWS[1:]]
    small.write_json_lines(tmp_path / "a.jsonl", rows)

    differences = verify_artifact(artifact, VerifyOptions()).differences

    assert [(item.row, item.in_artifact, item.from_source) for item in differences] == [(1, 20, 99)]


@pytest.mark.parametrize("preprocessing", [{"kind": "prompt_completion", "add_bos": True}, {"kind": "chat"}])
def test_workers_split_texts_alike(tmp_path: Path, chatml_tokenizer: Path, preprocessing: dict[str, Any]) -> None:
    rows = [{"prompt": f"say {count}", "completion": "word " * count} for count in range(1, 60)]
    source = small.write_json_lines(tmp_path / "a.jsonl", rows)
    kind = {**preprocessing, "over_long": "split"}
    packing = {"packed_sequence_size": 32, "algorithm": "sequential"}
    recipe = small.small_recipe(source, chatml_tokenizer, preprocessing=kind, packing=packing)

    manifest = small.build(recipe, tmp_path / "one").manifest
    small.build(recipe, tmp_path / "two", num_workers=2)

    assert manifest.splits[0].statistics.num_split > 5
    small.assert_balanced(manifest)
    assert small.file_bytes(tmp_path / "one") == small.file_bytes(tmp_path / "two")
    assert verify_artifact(tmp_path / "one", VerifyOptions()).outcome == "same"


EXACT = {"data__deduplicate": "exact"}
ONE, TWO, LONG = small.tokenized_row(5, 6, 7), small.tokenized_row(8, 9), small.tokenized_row(*range(20, 40))


def _ledger(folder: Path) -> list[tuple[str, str, int, str]]:
    lines = map(json.loads, (folder / "plan" / "dropped.jsonl").read_text().splitlines())
    return [(line["split"], Path(line["file"]).name, line["row"], line["reason"]) for line in lines]


def _sequences(folder: Path, manifest: Manifest) -> Counter[tuple[int, ...]]:
    """Count the ids of each sequence, in all splits; packs have a multiple of 1."""
    found: Counter[tuple[int, ...]] = Counter()
    for split in manifest.splits:
        for batch in Artifact(folder).iter_batches(split.name):
            for row in map(batch.row, range(batch.num_rows)):
                found.update(tuple(part.tolist()) for part in np.split(row.input_ids, row.seq_start_id[1:]))
    return found


def test_a_file_that_is_given_twice_is_said_to_be(tmp_path: Path, chatml_tokenizer: Path) -> None:
    file = str(small.write_json_lines(tmp_path / "a.jsonl", [ONE, TWO]))

    manifest = small.build(small.tokenized_recipe([file, file], chatml_tokenizer, **EXACT), tmp_path / "out").manifest

    details = {drop.detail for drop in manifest.splits[0].drop_examples}
    (detail,) = details
    assert mentions(detail, "file more than once", "training already has")


def test_first_row_stays_and_validation_comes_before_training(tmp_path: Path, chatml_tokenizer: Path) -> None:
    other_mask = small.tokenized_row(5, 6, 7, num_prompt=2)
    first = small.write_json_lines(tmp_path / "a.jsonl", [ONE, TWO, {}, ONE, other_mask])
    second = small.write_json_lines(tmp_path / "b.jsonl", [TWO, ONE, small.tokenized_row(9, 9)])
    held = small.write_json_lines(tmp_path / "v.jsonl", [TWO, TWO])
    recipe = small.tokenized_recipe(
        [str(first), str(second)], chatml_tokenizer, data__validation=str(held), data__on_bad_row="drop", **EXACT
    )

    manifest = small.build(recipe, tmp_path / "out").manifest

    assert _sequences(tmp_path / "out", manifest) == {(5, 6, 7): 2, (8, 9): 1, (9, 9): 1}
    assert _ledger(tmp_path / "out") == [
        ("training", "a.jsonl", 2, "duplicate"),
        ("training", "a.jsonl", 3, "missing_field"),
        ("training", "a.jsonl", 4, "duplicate"),
        ("training", "b.jsonl", 1, "duplicate"),
        ("training", "b.jsonl", 2, "duplicate"),
        ("validation", "v.jsonl", 2, "duplicate"),
    ]
    details = [drop.detail for drop in manifest.splits[0].drop_examples if drop.reason == "duplicate"]
    assert mentions(details[0], "tokens and mask equal", f" {held} row 1, in validation")
    assert mentions(details[1], "tokens and mask equal", f" {first} row 1, in training")
    assert [[item.num_duplicates for item in split.inputs] for split in manifest.splits] == [[2, 2], [1]]
    small.assert_balanced(manifest)
    codes = {finding.code for finding in check(tmp_path / "out").findings}
    assert not codes & {"BP320", "BP349"}
    for options in (VerifyOptions(), VerifyOptions(num_packs=None)):
        assert verify_artifact(tmp_path / "out", options).outcome == "same"


@pytest.mark.parametrize("over_long", ["drop", "truncate", "split"])
def test_bytes_are_the_same_for_any_workers_and_ranges(
    tmp_path: Path, chatml_tokenizer: Path, over_long: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [small.tokenized_row(*([10 + index % 7] * (2 + index % 11))) for index in range(300)]
    source = small.write_json_lines(tmp_path / "a.jsonl", [*rows, LONG, LONG, small.tokenized_row(*range(20, 45))])
    changes: dict[str, Any] = {**EXACT, "preprocessing__over_long": over_long, "data__validation_fraction": 0.3}
    recipe = small.tokenized_recipe(source, chatml_tokenizer, **changes)
    manifest = small.build(recipe, tmp_path / "one").manifest
    monkeypatch.setattr(line_blocks, "MIN_BLOCK_BYTES", 500)
    small.build(recipe, tmp_path / "two", num_workers=2, store=tmp_path / "store")

    assert small.file_bytes(tmp_path / "one") == small.file_bytes(tmp_path / "two")
    small.assert_balanced(manifest)
    num_long = {"drop": 0, "truncate": 1, "split": 2}[over_long]
    assert sum(split.statistics.num_rows_packed for split in manifest.splits) == 77 + num_long
    if over_long != "split":  # different rows may share a piece
        assert set(_sequences(tmp_path / "one", manifest).values()) == {1}
    assert "BP320" not in {finding.code for finding in check(tmp_path / "one").findings} or over_long == "split"


def test_duplicates_are_kept_unless_asked_for_and_stop_no_build(tmp_path: Path, chatml_tokenizer: Path) -> None:
    source = small.write_json_lines(tmp_path / "a.jsonl", [ONE, ONE])
    whole = small.tokenized_recipe(source, chatml_tokenizer)
    strict = small.tokenized_recipe(source, chatml_tokenizer, data__on_bad_row="error", **EXACT)

    assert small.build(whole, tmp_path / "whole").manifest.splits[0].drops == {}
    assert small.build(strict, tmp_path / "strict").manifest.splits[0].drops == {"duplicate": 1}
    small.write_json_lines(tmp_path / "v.jsonl", [ONE])
    nothing_left: SFTRecipe = small.tokenized_recipe(
        source, chatml_tokenizer, data__validation=str(tmp_path / "v.jsonl"), **EXACT
    )
    with pytest.raises(DataError, match=r"all 2 rows were dropped \(duplicate 2\).*row 1, in validation"):
        small.build(nothing_left, tmp_path / "nothing")
