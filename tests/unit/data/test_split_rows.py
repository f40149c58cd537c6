"""Rows that are too long and become several sequences: where they lie, what proves them, and what the counts say."""

from pathlib import Path
from typing import Any

import pytest

from bridgepack.api import check, inspect
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.manifest import read_manifest
from bridgepack.data.artifact.plan import entries_of_row
from bridgepack.data.repack import repack_artifact
from bridgepack.data.results import BuildOptions
from bridgepack.proof.diff.diff import diff_artifacts
from bridgepack.proof.packs import RunOptions, TracedRun
from bridgepack.proof.trace.trace import trace_source
from bridgepack.proof.verify.verify import VerifyOptions, verify_artifact
from bridgepack.report.proofs import describe_source
from tests.support.small_builds import (
    assert_balanced,
    build,
    dropped,
    file_bytes,
    small_recipe,
    tokenized_recipe,
    tokenized_row,
    write_json_lines,
)

#: Row 1 becomes two pieces behind one that only has context; row 2 stays whole; row 3 trains nothing.
ROWS = [
    tokenized_row(*range(10, 22), num_prompt=5),
    tokenized_row(30, 31, 32),
    tokenized_row(*range(40, 50), num_prompt=10),
]
SPLIT = {"preprocessing__over_long": "split", "packing__max_sequence_length": 4}


@pytest.fixture
def artifact(tmp_path: Path, chatml_tokenizer: Path) -> Path:
    recipe = tokenized_recipe(write_json_lines(tmp_path / "a.jsonl", ROWS), chatml_tokenizer, **SPLIT)
    return build(recipe, tmp_path / "out").output


def test_each_label_lies_in_one_piece_and_pieces_without_one_are_counted(artifact: Path) -> None:
    entries = entries_of_row(Artifact(artifact), "training", [0], 1)
    row = Artifact(artifact).row("training", 0)
    starts = [int(row.seq_start_id[entry.position]) for entry in entries]
    numbers = read_manifest(artifact).splits[0].statistics

    assert [(entry.first_token, entry.runtime_length, entry.is_truncated) for entry in entries] == [
        (4, 4, False),
        (8, 3, False),
    ]
    assert row.input_ids[starts[0] : starts[0] + 5].tolist() == [14, 15, 16, 17, 18]
    assert row.loss_mask[starts[0] : starts[0] + 5].tolist() == [1, 1, 1, 1, 0]
    assert row.input_ids[starts[1] : starts[1] + 4].tolist() == [18, 19, 20, 21]
    assert (numbers.num_rows_in, numbers.num_sequences, numbers.num_truncated) == (3, 3, 0)
    assert (numbers.num_split, numbers.num_pieces, numbers.num_untrained_pieces) == (1, 2, 1)
    assert numbers.num_trained_tokens == 9
    assert dropped(artifact) == [(3, "no_trained_token")]
    assert_balanced(read_manifest(artifact))


def test_every_command_knows_the_row_of_a_piece(artifact: Path) -> None:
    run = TracedRun(Artifact(artifact), RunOptions(overrides={"batch.global_batch_size": 1}))
    trace = trace_source(run, "a.jsonl", 1, limit=1)

    assert [placement.sequence.first_token for placement in trace.placements] == [4, 8]
    assert "a.jsonl row 1 from token 8" in describe_source(trace, has_colour=False)
    assert sorted(item.row or 0 for item in inspect(artifact, row=0).sequences) == [1, 1, 2]
    assert {finding.code for finding in check(artifact).findings if finding.severity == "error"} == {"BP543"}
    for options in (VerifyOptions(), VerifyOptions(num_packs=None), VerifyOptions(origin="store")):
        assert verify_artifact(artifact, options).outcome == "same"
    same = diff_artifacts(artifact, artifact).splits[0]
    assert (same.num_unchanged, same.num_lost, same.num_gained) == (3, 0, 0)
    shorter = repack_artifact(artifact, {"packing.max_sequence_length": 3}, options=BuildOptions(num_workers=0)).output
    other = diff_artifacts(artifact, shorter).splits[0]
    assert (other.num_unchanged, other.num_lost + other.num_retokenized) == (1, 2)


def test_a_piece_that_was_changed_is_found(artifact: Path, tmp_path: Path) -> None:
    rows = [tokenized_row(*range(10, 20), 99, 21, num_prompt=5), *ROWS[1:]]
    write_json_lines(tmp_path / "a.jsonl", rows)

    differences = verify_artifact(artifact, VerifyOptions()).differences

    assert [(item.row, item.in_artifact, item.from_source) for item in differences] == [(1, 20, 99)]


@pytest.mark.parametrize("preprocessing", [{"kind": "prompt_completion", "add_bos": True}, {"kind": "chat"}])
def test_workers_split_texts_alike(tmp_path: Path, chatml_tokenizer: Path, preprocessing: dict[str, Any]) -> None:
    rows = [{"prompt": f"say {count}", "completion": "word " * count} for count in range(1, 60)]
    source = write_json_lines(tmp_path / "a.jsonl", rows)
    kind = {**preprocessing, "over_long": "split"}
    packing = {"packed_sequence_size": 32, "algorithm": "sequential"}
    recipe = small_recipe(source, chatml_tokenizer, preprocessing=kind, packing=packing)

    manifest = build(recipe, tmp_path / "one").manifest
    build(recipe, tmp_path / "two", num_workers=2)

    assert manifest.splits[0].statistics.num_split > 5
    assert_balanced(manifest)
    assert file_bytes(tmp_path / "one") == file_bytes(tmp_path / "two")
    assert verify_artifact(tmp_path / "one", VerifyOptions()).outcome == "same"
