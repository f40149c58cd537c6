"""Comparisons of tiny artifacts: every fate of a sequence, masks, statistics, settings."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridgepack.errors import ArtifactError
from bridgepack.proof.diff.diff import diff_artifacts, matched_files
from bridgepack.proof.diff.records import DiffReport, MovedTokens
from bridgepack.proof.diff.tables import SequenceTable, match_sequences
from bridgepack.records import InputRecord
from tests.support.artifact_mutations import cast_column
from tests.support.small_builds import Row, build, chat_row, small_recipe, tokenized_row, with_changes, write_json_lines
from tests.support.traced_artifacts import build_traced, change_shard, restate, source_rows, traced_recipe, write_source


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory, chatml_tokenizer: Path) -> Path:
    return build_traced(tmp_path_factory.mktemp("first"), chatml_tokenizer)


def _built(folder: Path, rows: list[Row | None], tokenizer: Path) -> Path:
    return build(traced_recipe(write_source(folder / "rows.jsonl", rows), tokenizer), folder / "artifact").output


def _counts(report: DiffReport) -> dict[str, int]:
    return {name: count for name, count in report.splits[0].counts.items() if count}


def test_one_changed_row(artifact: Path, tmp_path: Path, chatml_tokenizer: Path) -> None:
    rows = source_rows()
    rows[2] = tokenized_row(23, 5, 6, 77, 8, 9, 2)
    report = diff_artifacts(artifact, _built(tmp_path, rows, chatml_tokenizer))
    (found,) = report.splits[0].differences

    assert not report.is_same
    assert _counts(report) == {"retokenized": 1}
    assert (found.fate, found.token, found.is_same_input) == ("retokenized", 3, False)
    assert [place and place.row for place in (found.first, found.second)] == [3, 3]
    assert [item.name.partition(": ")[0] for item in report.inputs] == ["training"]


def test_row_put_in_before_the_others_moves_them(artifact: Path, tmp_path: Path, chatml_tokenizer: Path) -> None:
    rows = source_rows()
    report = diff_artifacts(
        artifact, _built(tmp_path, [tokenized_row(99, 5, 2), *rows[:-1]], chatml_tokenizer), limit=20
    )
    differences = report.splits[0].differences
    fates = {(item.fate, item.first and item.first.row, item.second and item.second.row) for item in differences}

    assert _counts(report) == {"lost": 1, "gained": 1, "moved": 11}
    assert fates >= {("gained", None, 1), ("lost", 14, None), ("moved", 1, 2)}


def test_moved_mask_says_which_tokens(artifact: Path, tmp_path: Path, chatml_tokenizer: Path) -> None:
    rows = source_rows()
    rows[6] = {**tokenized_row(27, 5, 6, 7, 8, 9, 2), "labels": [-100, -100, 6, -100, 8, 9, 2]}
    report = diff_artifacts(artifact, _built(tmp_path, rows, chatml_tokenizer))
    (found,) = report.splits[0].differences

    assert _counts(report) == {"mask_moved": 1}
    assert (found.token, found.num_mask_tokens) == (None, 2)
    assert [(moved.start, moved.stop, moved.is_trained_now) for moved in found.masks] == [(1, 2, False), (3, 4, False)]
    assert all(isinstance(moved, MovedTokens) and moved.text for moved in found.masks)


def test_other_settings_name_seed_and_padding(artifact: Path, chatml_tokenizer: Path, tmp_path: Path) -> None:
    def report(**changes: Any) -> DiffReport:
        recipe = traced_recipe(artifact.parent / "rows.jsonl", chatml_tokenizer, **changes)
        return diff_artifacts(artifact, build(recipe, tmp_path / next(iter(changes))).output)

    named, seeded, padded = report(name="other"), report(packing__seed=7), report(packing__pad_seq_to_mult=8)

    assert named.is_same
    assert [(item.name, item.first, item.second) for item in named.settings] == [("recipe.name", "small", "other")]
    assert (seeded.splits[0].num_unchanged, seeded.splits[0].is_same) == (12, False)
    assert seeded.splits[0].num_repacked > 0
    assert (padded.splits[0].num_unchanged, _counts(padded)) == (12, {})
    numbers = {item.name: (item.first, item.second) for item in padded.splits[0].statistics}
    assert (numbers["num_alignment_tokens"], numbers["dropped_over_long"]) == ((0, 24), (1, 1))


def test_losses_that_differ_are_numbers(chatml_tokenizer: Path, tmp_path: Path) -> None:
    row = chat_row("what", "one")
    row["messages"][1]["weight"] = 0
    source = write_json_lines(tmp_path / "rows.jsonl", [row, chat_row("and", "two")])
    recipe = small_recipe(source, chatml_tokenizer, packing={"packed_sequence_size": 64})
    made = [
        build(with_changes(recipe, {"preprocessing__message_weights": weights}), tmp_path / weights).output
        for weights in ("ignore", "mask")
    ]

    statistics = diff_artifacts(*made).splits[0].statistics
    assert [(item.first, item.second) for item in statistics if item.name == "lost_weight"] == [(1, None)]


def test_split_of_one_artifact_only(artifact: Path, chatml_tokenizer: Path, tmp_path: Path) -> None:
    source = artifact.parent / "rows.jsonl"
    held_out = write_source(tmp_path / "held-out.jsonl", source_rows()[:4])
    recipe = traced_recipe(source, chatml_tokenizer, data__validation=str(held_out))
    report = diff_artifacts(artifact, build(recipe, tmp_path / "other").output)

    found = [(split.name, split.num_gained, split.num_unchanged) for split in report.splits]
    assert found == [("training", 0, 12), ("validation", 4, 0)]


def test_mask_of_another_type_is_the_same_mask(artifact: Path, tmp_path: Path) -> None:
    shutil.copytree(artifact, tmp_path / "copy")
    cast_column(tmp_path / "copy", "loss_mask", pa.bool_())
    assert diff_artifacts(artifact, tmp_path / "copy").is_same


def test_shards_that_do_not_fit_their_plan_are_refused(artifact: Path, tmp_path: Path) -> None:
    shutil.copytree(artifact, tmp_path / "copy")
    change_shard(tmp_path / "copy", 4, "seq_start_id", 1, 3)
    with pytest.raises(ArtifactError, match=r"its sha256 is|bytes; the manifest says"):
        diff_artifacts(artifact, tmp_path / "copy")

    restate(tmp_path / "copy")
    with pytest.raises(ArtifactError, match="not match the packs"):
        diff_artifacts(artifact, tmp_path / "copy")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (["a/x:1", "a/y:2"], ["a/y:2", "a/x:1"], [1, 0]),
        (["a/x:1", "a/y:2"], ["b/p:2", "b/q:1"], [1, 0]),
        (["a/x:1", "a/y:2"], ["b/y:3", "b/x:4"], [1, 0]),
        (["a/x:1"], ["b/z:9"], [0]),
        (["a/x:1", "a/y:2"], ["b/p:8", "b/q:9"], [2, 3]),
        ([], ["b/p:8"], [0]),
    ],
)
def test_files_are_matched_by_path_bytes_and_name(first: list[str], second: list[str], expected: list[int]) -> None:
    def record(file: str) -> InputRecord:
        path, sha256 = file.split(":")
        return InputRecord(path=path, num_bytes=1, sha256=sha256, num_rows=1)

    ours, theirs = matched_files(list(map(record, first)), list(map(record, second)))

    assert ours.tolist() == list(range(len(first)))
    assert theirs.tolist() == expected


_SEQUENCES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=12)


@given(first=_SEQUENCES, second=_SEQUENCES)
def test_every_sequence_has_one_fate(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    tables = _table(first), _table(second)
    files = np.zeros(1, dtype=np.int32)
    matched = match_sequences(*tables, (files, files))
    pairs = (matched.unchanged, matched.moved, matched.masks, matched.retokenized)

    for side, alone in enumerate((matched.lost, matched.gained)):
        indices = np.concatenate([*(pair[side] for pair in pairs), alone])
        assert sorted(indices.tolist()) == list(range(len((first, second)[side])))
    assert all((ours, first[ours]) == (theirs, second[theirs]) for ours, theirs in zip(*matched.unchanged, strict=True))
    assert all(first[ours] == second[theirs] for ours, theirs in zip(*matched.moved, strict=True))
    for ours, theirs in zip(*matched.masks, strict=True):
        (tokens, mask), (same_tokens, other_mask) = first[ours], second[theirs]
        assert (tokens == same_tokens, mask == other_mask) == (True, False)
    shared = sum(min(first.count(item), second.count(item)) for item in set(first))
    assert len(matched.unchanged[0]) + len(matched.moved[0]) == shared


def _table(sequences: list[tuple[int, int]]) -> SequenceTable:
    """Return sequences of (tokens, mask), one a row of one file."""
    count = len(sequences)
    return SequenceTable(
        packs=np.arange(count),
        positions=np.zeros(count, dtype=np.int32),
        files=np.zeros(count, dtype=np.int32),
        rows=np.arange(1, count + 1),
        lengths=np.ones(count, dtype=np.int32),
        token_hashes=np.array([tokens for tokens, _ in sequences], dtype=np.uint64),
        content_hashes=np.array([10 * tokens + mask for tokens, mask in sequences], dtype=np.uint64),
    )
