"""Builds with conversations that become several sequences: what counts rows, what counts pieces, what proves them."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from bridgepack.api import check, inspect
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.reading import lines as line_blocks
from bridgepack.data.repack import repack_artifact
from bridgepack.data.results import BuildOptions
from bridgepack.errors import DataError
from bridgepack.planning.lengths import lengths_of
from bridgepack.planning.preview import preview_recipe
from bridgepack.proof.diff.diff import diff_artifacts
from bridgepack.proof.mask_check import check_masks
from bridgepack.proof.masks.masks import MaskOptions
from bridgepack.proof.packs import RunOptions, TracedRun
from bridgepack.proof.served.served import check_served
from bridgepack.proof.trace.trace import trace_source
from bridgepack.proof.verify.verify import VerifyOptions, verify_artifact
from bridgepack.records import Manifest
from bridgepack.reporting.results.artifacts import manifest_blocks
from bridgepack.reporting.results.previews import preview_blocks
from bridgepack.reporting.screen import screen
from tests.support import small_builds as small
from tests.support import thoughtful
from tests.support.messages import mentions
from tests.support.thoughtful import AGENT, PLAIN, TWO_THOUGHTS, said
from tests.zoo import exchanges
from tests.zoo.tokenizers import write_tokenizer

CHAT = {"kind": "chat", "split_conversations": "when_context_differs"}
#: Its second exchange is long.
LONG = [*TWO_THOUGHTS, said("user", "three"), said("assistant", "word " * 60, reasoning_content="many words")]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("exchanges"), exchanges.FAMILIES["exchanges"])


def _numbered(number: int, num_answers: int = 2) -> list[thoughtful.Message]:
    """Return a conversation of its own with so many answers, each with a thought."""
    turns = []
    for answer in range(num_answers):
        turns += [said("user", f"ask {number} {answer}"), said("assistant", f"say {answer}", reasoning_content="why")]
    return turns


def _recipe(train: Any, tokenizer: Path, **changes: Any) -> Any:
    recipe = small.small_recipe(train, tokenizer, preprocessing=CHAT, packing={"packed_sequence_size": 256})
    return small.with_changes(recipe, changes)


def _assert_adds_up(folder: Path, manifest: Manifest) -> None:
    """Assert that rows are packed, packed in part or dropped, as plan and ledger have them, piece by piece."""
    small.assert_balanced(manifest)
    lines = [json.loads(line) for line in (folder / "plan" / "dropped.jsonl").read_text().splitlines()]
    for split in manifest.splits:
        own = [line for line in lines if line["split"] == split.name]
        rows = Counter(line["reason"] for line in own if "first_token" not in line)
        pieces = [line for line in own if "first_token" in line]
        assert rows == Counter({key: count for key, count in split.drops.items() if key != "not_sampled"})
        assert Counter(line["reason"] for line in pieces) == Counter(split.dropped_pieces)
        numbers = split.statistics
        partly = {(line["file"], line["row"]) for line in pieces}
        if not numbers.num_repeated and "not_sampled" not in split.drops:
            assert numbers.num_partly_packed == len(partly)
        whole = numbers.num_rows_packed - numbers.num_partly_packed
        assert numbers.num_rows_in == whole + numbers.num_partly_packed + sum(split.drops.values())


def test_every_command_knows_the_row_of_a_piece(tmp_path: Path, tokenizer: Path) -> None:
    source = thoughtful.write_rows(tmp_path / "a.jsonl", [TWO_THOUGHTS, PLAIN, AGENT])
    built = small.build(_recipe(source, tokenizer), tmp_path / "out")
    artifact, numbers = built.output, built.manifest.splits[0].statistics

    assert (numbers.num_rows_in, numbers.num_sequences, numbers.num_rows_packed) == (3, 5, 3)
    assert (numbers.num_split, numbers.num_pieces, numbers.num_partly_packed) == (2, 4, 0)
    _assert_adds_up(artifact, built.manifest)
    run = TracedRun(Artifact(artifact), RunOptions(overrides={"batch.global_batch_size": 1}))
    placements = trace_source(run, "a.jsonl", 1, limit=1).placements
    first, second = (placement.sequence for placement in placements)
    assert (first.first_token, second.first_token) == (0, first.runtime_length + 1)
    assert "think of one" in "".join(span.text for span in first.spans if span.is_trained)
    assert "think of two" in "".join(span.text for span in second.spans if span.is_trained)
    rows = [item.row for pack in range(numbers.num_packs) for item in inspect(artifact, pack=pack).sequences]
    assert Counter(rows) == {1: 2, 2: 1, 3: 2}
    agent = trace_source(run, "a.jsonl", 3, limit=1).placements[0].sequence
    assert numbers.num_added_tokens == first.runtime_length + agent.runtime_length
    share = numbers.num_added_tokens / (numbers.num_tokens - numbers.num_added_tokens)
    assert f"again, {share:.0%} more than" in screen(manifest_blocks(built.manifest, artifact))
    for options in (VerifyOptions(), VerifyOptions(num_packs=None)):
        assert verify_artifact(artifact, options).outcome == "same"
    same = diff_artifacts(artifact, artifact).splits[0]
    assert (same.num_unchanged, same.num_lost, same.num_gained) == (5, 0, 0)
    assert not [finding for finding in check(artifact).findings if finding.severity == "error"]
    masks = check_masks(artifact, MaskOptions(num_rows=None))
    assert (masks.outcome, masks.num_rows_read, masks.num_sequences, masks.num_agreed) == ("agree", 3, 5, 5)


def test_preview_and_plan_say_what_it_costs(tmp_path: Path, tokenizer: Path) -> None:
    source = thoughtful.write_rows(tmp_path / "a.jsonl", [TWO_THOUGHTS, PLAIN, AGENT])
    recipe = _recipe(source, tokenizer)
    numbers = small.build(recipe, tmp_path / "out").manifest.splits[0].statistics
    share = numbers.num_added_tokens / (numbers.num_tokens - numbers.num_added_tokens)

    preview = preview_recipe(recipe)

    tokens = preview.sources[0].tokens
    assert tokens is not None
    assert (tokens.sequences_per_row, tokens.added_fraction) == (5 / 3, share)
    text = screen(preview_blocks(preview))
    assert f"1.67 sequences per row, {share:.0%}" in text
    assert f" again, {share:.0%} more tokens" in lengths_of(recipe).origin
    never = recipe.override({"preprocessing.split_conversations": "never"})
    assert "sequences per row" not in screen(preview_blocks(preview_recipe(never)))
    assert "again" not in lengths_of(never).origin


def test_the_comparison_with_a_server_reads_pieces(tmp_path: Path, tokenizer: Path) -> None:
    source = thoughtful.write_rows(tmp_path / "a.jsonl", [TWO_THOUGHTS, PLAIN, AGENT])
    recipe = _recipe(source, tokenizer)

    split, never = (
        check_served(recipe.override({"preprocessing.split_conversations": value}), MaskOptions(num_rows=None)).record
        for value in ("when_context_differs", "never")
    )

    assert {str(count.kind): count.num_answers for count in split.counts} == {"equal": 8}
    assert {str(count.kind): count.num_answers for count in never.counts} != {"equal": 8}
    assert never.num_answers == split.num_answers == 8


def test_a_piece_that_was_changed_is_found(tmp_path: Path, tokenizer: Path) -> None:
    source = thoughtful.write_rows(tmp_path / "a.jsonl", [TWO_THOUGHTS, PLAIN])
    artifact = small.build(_recipe(source, tokenizer), tmp_path / "out").output
    changed = [*TWO_THOUGHTS[:3], {**TWO_THOUGHTS[3], "content": "other"}]
    thoughtful.write_rows(source, [changed, PLAIN])

    report = verify_artifact(artifact, VerifyOptions())

    assert report.outcome == "differs"
    assert [item.row for item in report.differences] == [1]


@pytest.mark.parametrize("over_long", ["drop", "truncate", "split"])
def test_an_over_long_piece_is_dropped_cut_or_split_and_others_stay(
    tmp_path: Path, tokenizer: Path, over_long: str
) -> None:
    source = thoughtful.write_rows(tmp_path / "a.jsonl", [LONG, TWO_THOUGHTS])
    recipe = _recipe(source, tokenizer, preprocessing__over_long=over_long, packing__max_sequence_length=100)

    built = small.build(recipe, tmp_path / "out")
    split = built.manifest.splits[0]
    numbers = split.statistics

    _assert_adds_up(tmp_path / "out", built.manifest)
    assert numbers.num_rows_in == numbers.num_rows_packed == 2
    entries = trace_source(TracedRun(Artifact(built.output), RunOptions()), "a.jsonl", 1, limit=1)
    if over_long == "drop":
        assert (numbers.num_pieces, numbers.num_partly_packed, split.dropped_pieces) == (4, 1, {"over_long": 1})
        assert split.piece_examples[0].detail.startswith("piece 3 of 3: ")
        assert [drop.reason for drop in entries.drops] == ["over_long"]
        assert re.search("pieces dropped +1, of 1 rows", screen(manifest_blocks(built.manifest, built.output)))
    elif over_long == "truncate":
        assert (numbers.num_pieces, numbers.num_truncated, numbers.num_partly_packed) == (5, 1, 0)
    else:
        firsts = [placement.sequence.first_token for placement in entries.placements]
        assert len(firsts) > 3
        assert np.diff(firsts)[2:].tolist() == [100] * (len(firsts) - 3)
        assert (numbers.num_truncated, numbers.num_partly_packed) == (0, 0)
    for options in (VerifyOptions(), VerifyOptions(num_packs=None)):
        assert verify_artifact(built.output, options).outcome == "same"


def test_check_reports_many_dropped_pieces(tmp_path: Path, tokenizer: Path) -> None:
    source = thoughtful.write_rows(tmp_path / "a.jsonl", [LONG, *(_numbered(number) for number in range(20))])
    recipe = _recipe(source, tokenizer, packing__max_sequence_length=100)

    built = small.build(recipe, tmp_path / "out")
    found = [finding for finding in check(built.output).findings if finding.code == "BP510"]

    assert len(found) == 1
    assert mentions(found[0], "1 of 43 pieces", "over-long")


def test_an_over_long_piece_stops_a_build_that_shall_stop(tmp_path: Path, tokenizer: Path) -> None:
    source = thoughtful.write_rows(tmp_path / "a.jsonl", [LONG])
    recipe = _recipe(source, tokenizer, preprocessing__over_long="error", packing__max_sequence_length=100)

    with pytest.raises(DataError, match=r"a\.jsonl row 1: over_long: piece 3 of 3"):
        small.build(recipe, tmp_path / "out")


def test_a_row_is_dropped_if_all_its_pieces_are(tmp_path: Path, tokenizer: Path) -> None:
    source = thoughtful.write_rows(tmp_path / "a.jsonl", [LONG, [said("user", "a"), said("assistant", "b")]])
    recipe = _recipe(source, tokenizer, packing__max_sequence_length=20)

    built = small.build(recipe, tmp_path / "out")

    assert small.dropped(tmp_path / "out") == [(1, "over_long")]
    assert "all of its 3 pieces are dropped" in built.manifest.splits[0].drop_examples[0].detail
    _assert_adds_up(tmp_path / "out", built.manifest)


def test_repacks_to_the_bytes_of_a_build(tmp_path: Path, tokenizer: Path) -> None:
    source = thoughtful.write_rows(tmp_path / "a.jsonl", [LONG, TWO_THOUGHTS, AGENT])
    recipe = _recipe(source, tokenizer, preprocessing__over_long="split")
    built = small.build(recipe, tmp_path / "out").output
    shorter = {"packing.max_sequence_length": 64}

    repacked = repack_artifact(built, shorter, output=tmp_path / "re", options=BuildOptions(num_workers=0)).output
    small.build(recipe.override(shorter), tmp_path / "again")

    assert small.data_bytes(repacked) == small.data_bytes(tmp_path / "again")
    assert verify_artifact(repacked, VerifyOptions()).outcome == "same"


def test_duplicates_are_pieces_and_validation_is_by_row(tmp_path: Path, tokenizer: Path) -> None:
    """The two conversations share their first exchange."""
    other = [*TWO_THOUGHTS[:2], said("user", "else"), said("assistant", "other", reasoning_content="other thought")]
    source = thoughtful.write_rows(tmp_path / "a.jsonl", [TWO_THOUGHTS, other, TWO_THOUGHTS])
    recipe = _recipe(source, tokenizer, data__deduplicate="exact")

    built = small.build(recipe, tmp_path / "out")
    split = built.manifest.splits[0]

    assert (split.drops, split.dropped_pieces) == ({"duplicate": 1}, {"duplicate": 1})
    assert [(drop.row, drop.first_token) for drop in split.piece_examples] == [(2, 0)]
    assert "a.jsonl row 1, in training" in split.piece_examples[0].detail
    assert (split.statistics.num_sequences, split.statistics.num_partly_packed) == (3, 1)
    _assert_adds_up(tmp_path / "out", built.manifest)
    assert verify_artifact(built.output, VerifyOptions(num_packs=None)).outcome == "same"


def test_the_ledger_tells_equal_pieces_from_those_that_are_too_long(tmp_path: Path, tokenizer: Path) -> None:
    """Row 2 loses an equal piece, row 3 one that is too long, and row 4 both: of that row something is lost."""

    def row(*answers: str) -> list[thoughtful.Message]:
        turns = ([said("user", "ask"), said("assistant", text, reasoning_content=text)] for text in answers)
        return [turn for pair in turns for turn in pair]

    long = "word " * 60
    rows = [row("one", "two"), row("one", "other"), row("three", long), row("one", long)]
    source = thoughtful.write_rows(tmp_path / "a.jsonl", rows)
    recipe = _recipe(source, tokenizer, data__deduplicate="exact", packing__max_sequence_length=100)

    built = small.build(recipe, tmp_path / "out")

    split = built.manifest.splits[0]
    assert [(drop.row, drop.reason) for drop in split.piece_examples] == [(2, "duplicate"), (3, "over_long")]
    assert (split.drops, split.dropped_pieces) == ({"over_long": 1}, {"duplicate": 1, "over_long": 1})
    assert split.drop_examples[0].detail.startswith("all of its 2 pieces are dropped, piece 2 because: ")
    assert (split.statistics.num_rows_packed, split.statistics.num_partly_packed) == (3, 2)
    text = screen(manifest_blocks(built.manifest, built.output))
    assert re.search(r"pieces dropped +2, of 2 rows .*\n    duplicate", text)
    _assert_adds_up(built.output, built.manifest)
    assert verify_artifact(built.output, VerifyOptions(num_packs=None)).outcome == "same"


def test_bytes_are_the_same_for_any_workers_and_ranges(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [_numbered(number % 40, 1 + number % 4) for number in range(80)]
    source = thoughtful.write_rows(tmp_path / "a.jsonl", [*rows, LONG])
    changes = {"data__deduplicate": "exact", "data__validation_fraction": 0.3, "packing__max_sequence_length": 100}
    recipe = _recipe(source, tokenizer, **changes)
    manifest = small.build(recipe, tmp_path / "one").manifest
    monkeypatch.setattr(line_blocks, "MIN_BLOCK_BYTES", 500)
    small.build(recipe, tmp_path / "two", num_workers=2, store=tmp_path / "store")

    assert small.file_bytes(tmp_path / "one") == small.file_bytes(tmp_path / "two")
    _assert_adds_up(tmp_path / "one", manifest)
    training, validation = (_rows(tmp_path / "one", split.name) for split in manifest.splits)
    assert training
    assert validation
    assert not training & validation


def _rows(folder: Path, split: str) -> set[int]:
    return set(pq.read_table(folder / "plan" / f"{split}.parquet")["row"].to_pylist())


def test_mixtures_count_rows_and_use_all_pieces_of_a_row(tmp_path: Path, tokenizer: Path) -> None:
    many = thoughtful.write_rows(tmp_path / "many.jsonl", [_numbered(number, 3) for number in range(20)])
    few = thoughtful.write_rows(tmp_path / "few.jsonl", [_numbered(number, 1) for number in range(100, 120)])
    train = [{"path": str(many), "max_rows": 5}, {"path": str(few), "epochs": 2}]

    built = small.build(_recipe(train, tokenizer), tmp_path / "limited")

    numbers, (first, second) = built.manifest.splits[0].statistics, built.manifest.splits[0].sources
    assert (first.num_sequences, second.num_sequences, second.num_repeated) == (15, 40, 20)
    assert (numbers.num_split, numbers.num_pieces, numbers.num_rows_packed) == (5, 15, 25)
    assert built.manifest.splits[0].drops == {"not_sampled": 15}
    _assert_adds_up(tmp_path / "limited", built.manifest)
    weighted = [{"path": str(many), "weight": 1}, {"path": str(few), "weight": 1}]
    mixture = {"data__mixture": {"by": "rows", "total": 40}}
    again = small.build(_recipe(weighted, tokenizer, **mixture), tmp_path / "weighted").manifest
    assert [source.share_got for source in again.splits[0].sources] == [0.5, 0.5]
    assert [source.num_sequences for source in again.splits[0].sources] == [60, 20]
    _assert_adds_up(tmp_path / "weighted", again)
    for folder in ("limited", "weighted"):
        assert verify_artifact(tmp_path / folder, VerifyOptions()).outcome == "same"


def test_repeated_pieces_are_counted_once(tmp_path: Path, tokenizer: Path) -> None:
    source = thoughtful.write_rows(tmp_path / "a.jsonl", [LONG, TWO_THOUGHTS])
    train = [{"path": str(source), "epochs": 3}]
    recipe = _recipe(train, tokenizer, packing__max_sequence_length=100)

    built = small.build(recipe, tmp_path / "out")

    numbers = built.manifest.splits[0].statistics
    assert (numbers.num_sequences, numbers.num_repeated, numbers.num_pieces) == (12, 8, 4)
    assert (numbers.num_rows_packed, numbers.num_partly_packed) == (2, 1)
    _assert_adds_up(tmp_path / "out", built.manifest)
    assert verify_artifact(built.output, VerifyOptions()).outcome == "same"
