"""Verifications of a tiny artifact from its sources: what is found, named, and not blamed."""

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bridgepack.api import check, inspect
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.errors import ArtifactError, BridgepackError, ConfigError
from bridgepack.proof.diff.diff import diff_artifacts
from bridgepack.proof.packs import RunOptions, TracedRun
from bridgepack.proof.trace.trace import trace_pack
from bridgepack.proof.verify import ingredients
from bridgepack.proof.verify.records import VerifyReport
from bridgepack.proof.verify.verify import VerifyOptions, verify_artifact
from tests.support.messages import mentions
from tests.support.small_builds import build, chat_row, small_recipe, tokenized_recipe, tokenized_row, write_json_lines
from tests.support.traced_artifacts import (
    OVER_LONG_ROW,
    build_traced,
    change_manifest,
    change_shard,
    restate,
    source_rows,
    traced_recipe,
    write_source,
)


@pytest.fixture
def artifact(tmp_path: Path, chatml_tokenizer: Path) -> Path:
    tokenizer = tmp_path / "tokenizer"
    shutil.copytree(chatml_tokenizer, tokenizer)
    return build_traced(tmp_path, tokenizer)


def _verified(artifact: Path, num_packs: int | None = 6, **options: Any) -> VerifyReport:
    return verify_artifact(artifact, VerifyOptions(num_packs=num_packs, **options))


def _outcomes(report: VerifyReport) -> dict[str, str]:
    return {check.name: check.outcome for check in report.checks if check.outcome != "same"}


@pytest.mark.parametrize("version", [2, 5, 7])
def test_artifact_of_another_format_is_refused_everywhere(artifact: Path, version: int) -> None:
    change_manifest(artifact, format_version=version)

    for command in (check, inspect, _verified):
        with pytest.raises(ArtifactError, match=rf"format_version is {version}; .* reads 6"):
            command(artifact)


def test_untouched_artifact_is_verified(artifact: Path) -> None:
    sampled, whole = _verified(artifact), _verified(artifact, None)

    assert (sampled.outcome, sampled.mode) == ("same", "sample")
    assert (sampled.num_packs_compared, sampled.num_sequences_compared) == (6, 12)
    assert (whole.outcome, whole.mode, whole.seed, whole.num_packs_compared) == ("same", "all", None, 6)
    assert (sampled.changed, sampled.differences, sampled.notes) == ((), (), ())


def test_sample_is_seeded(artifact: Path) -> None:
    write_source(artifact.parent / "rows.jsonl", [])
    found = [_verified(artifact, 2, seed=seed).differences for seed in (0, 0, 1, 2, 3)]
    packs = [tuple(item.pack for item in differences if item.sequence == 0) for differences in found]

    assert packs[0] == packs[1]
    assert {len(chosen) for chosen in packs} == {2}
    assert len(set(packs)) > 1


@pytest.mark.parametrize("num_packs", [1, None])
@pytest.mark.parametrize(
    ("column", "place", "value", "expected"),
    [
        ("input_ids", 8, 17, ("input_ids", 1, 1, 17, 5)),
        ("loss_mask", 0, 0, ("loss_mask", 0, 0, 0, 1)),
        ("seq_start_id", 1, 6, ("seq_start_id", None, 1, 6, 7)),
    ],
)
def test_changed_number_is_found(
    artifact: Path, num_packs: int | None, column: str, place: int, value: int, expected: tuple[Any, ...]
) -> None:
    shard = change_shard(artifact, 4, column, place, value)
    report = _verified(artifact, num_packs)
    first = report.differences[0]

    assert report.outcome == "differs"
    assert report.num_packs_different == 1
    assert (first.pack, first.shard, first.shard_row) == (4, f"training/{shard.name}", 4)
    found_column, sequence, *found = expected
    assert [first.column, first.token, first.in_artifact, first.from_source] == [found_column, *found]
    if sequence is not None:
        plan = pq.read_table(artifact / "plan" / "training.parquet").to_pylist()
        (row,) = [row["row"] for row in plan if (row["pack"], row["position"]) == (4, sequence)]
        assert (first.sequence, first.row) == (sequence, row)
    assert first.causes == ("artifact changed",)
    assert "changed after the build" in first.cause


def test_shard_and_manifest_changed_together_are_found(artifact: Path) -> None:
    change_shard(artifact, 2, "input_ids", 3, 11)
    restate(artifact)
    report = _verified(artifact)
    first = report.differences[0]

    assert _outcomes(report) == {"packs": "differs"}
    assert (first.pack, first.in_artifact, first.causes) == (2, 11, ("artifact changed",))
    assert "changed together" in first.cause


def test_rewritten_shard_with_the_same_rows_is_no_other_data(artifact: Path) -> None:
    shard = next((artifact / "training").glob("*.parquet"))
    pq.write_table(pq.read_table(shard), shard)

    assert _outcomes(_verified(artifact, 1)) == {"shards": "differs"}
    assert _outcomes(_verified(artifact, None)) == {"shards": "differs", "training shards": "differs"}


@pytest.mark.parametrize("num_packs", [6, None])
def test_changed_input_is_named(artifact: Path, num_packs: int | None) -> None:
    rows = source_rows()
    rows[2] = tokenized_row(23, 77, 6, 7, 8, 9, 2)
    write_source(artifact.parent / "rows.jsonl", rows)
    report = _verified(artifact, num_packs)
    first = report.differences[0]

    assert "inputs" in _outcomes(report)
    assert (first.row, first.column, first.token, first.in_artifact, first.from_source) == (3, "input_ids", 1, 5, 77)
    assert first.causes == ("input changed",)
    assert first.cause.startswith(f"{artifact.parent / 'rows.jsonl'} was ")


def test_row_that_is_gone_or_bad_is_a_difference(artifact: Path) -> None:
    rows = source_rows()[:12]
    rows[0] = {"input_ids": "none"}
    write_source(artifact.parent / "rows.jsonl", rows)
    found = {item.row: item.from_source for item in _verified(artifact).differences}

    assert mentions(found[1], "none: invalid_field: ", "input_ids must be a ")
    assert found[13] == f"no row 13 in {artifact.parent / 'rows.jsonl'}"
    assert set(found) == {1, 13, 14}


def test_row_that_was_dropped_counts_for_nothing(artifact: Path) -> None:
    rows = source_rows()
    rows[OVER_LONG_ROW - 1] = tokenized_row(*range(100, 150))
    write_source(artifact.parent / "rows.jsonl", rows)

    assert _outcomes(_verified(artifact)) == {"inputs": "differs"}
    assert _outcomes(_verified(artifact, None)) == {"inputs": "differs", "other files": "differs"}


def test_changed_tokenizer_is_named(artifact: Path) -> None:
    path = artifact.parent / "tokenizer" / "tokenizer.json"
    path.write_text(path.read_text() + "\n")
    report = _verified(artifact)

    assert _outcomes(report) == {"tokenizer": "differs"}
    assert [(item.cause, item.name) for item in report.changed] == [("tokenizer changed", "tokenizer.json")]


def test_changed_template_is_named(tmp_path: Path, chatml_tokenizer: Path) -> None:
    template = load_tokenizer(tokenized_recipe("x", chatml_tokenizer).tokenizer).chat_template or ""
    (tmp_path / "own.jinja").write_text(template)
    source = write_json_lines(tmp_path / "chats.jsonl", [chat_row(f"{index}?", "Ja.") for index in range(8)])
    changes = {"preprocessing__kind": "chat", "packing__packed_sequence_size": 64}
    recipe = traced_recipe(source, chatml_tokenizer, **changes, tokenizer__chat_template=str(tmp_path / "own.jinja"))
    artifact = build(recipe, tmp_path / "artifact").output
    assert _verified(artifact).outcome == "same"

    (tmp_path / "own.jinja").write_text(f"Be kind.{template}")
    report = _verified(artifact)
    assert _outcomes(report) == {"chat template": "differs", "packs": "differs"}
    assert {item.cause for item in report.changed} == {"chat template changed"}
    assert report.differences[0].causes == ("chat template changed",)

    (tmp_path / "own.jinja").write_text("{{ messages }}")
    assert _outcomes(_verified(artifact)) == {"chat template": "differs", "sources": "could not run"}


def test_other_library_is_a_note_and_a_cause_of_other_rows(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = ingredients.library_versions()
    monkeypatch.setattr(ingredients, "library_versions", lambda: {**versions, "tokenizers": "99.0"})
    same = _verified(artifact)
    change_shard(artifact, 0, "input_ids", 0, 17)
    other = _verified(artifact)

    assert same.outcome == "same"
    assert same.notes == (f"tokenizers was {versions['tokenizers']}, is 99.0",)
    assert other.differences[0].causes == ("artifact changed", "library version changed")


def test_gone_source_is_said_and_the_rest_is_verified(artifact: Path) -> None:
    (artifact.parent / "rows.jsonl").unlink()
    report = _verified(artifact)

    assert set(_outcomes(report)) == {"inputs", "sources"}
    assert _verified(artifact, None).outcome == "could not run"

    change_shard(artifact, 1, "input_ids", 1, 17)
    assert _verified(artifact).outcome == "differs"


def test_one_of_two_sources_is_gone(tmp_path: Path, chatml_tokenizer: Path) -> None:
    names = [write_source(tmp_path / name, source_rows()[:4]) for name in ("a.jsonl", "b.jsonl")]
    recipe = traced_recipe(names[0], chatml_tokenizer).override({"data.train": [str(name) for name in names]})
    artifact = build(recipe, tmp_path / "artifact").output
    names[0].unlink()
    report = _verified(artifact)

    assert (report.outcome, report.num_sequences_compared, report.differences) == ("could not run", 4, ())
    assert [item.name for item in report.changed] == [str(names[0])]


def test_sources_that_moved_are_named(artifact: Path, tmp_path: Path) -> None:
    (tmp_path / "moved").mkdir()
    shutil.move(artifact.parent / "rows.jsonl", tmp_path / "moved" / "other.jsonl")
    shutil.move(artifact.parent / "tokenizer", tmp_path / "moved" / "tokenizer")
    assert _verified(artifact).outcome == "could not run"

    places = {"data.train": "other.jsonl", "tokenizer.name_or_path": "tokenizer"}
    overrides = {field: str(tmp_path / "moved" / name) for field, name in places.items()}
    assert _outcomes(_verified(artifact, overrides=overrides)) == {}
    with pytest.raises(ConfigError, match=r"--set packing\.seed; allowed: data\.train"):
        _verified(artifact, overrides={"packing.seed": 7})
    with pytest.raises(ConfigError, match=r"--scratch is .*nowhere.* no such folder"):
        _verified(artifact, None, overrides=overrides, scratch=tmp_path / "nowhere")


def test_changed_records_are_found(artifact: Path) -> None:
    change_manifest(artifact, recipe__packing__seed=7)
    assert _outcomes(_verified(artifact, 6)) == {"manifest": "differs"}

    change_manifest(artifact, recipe__packing__seed=1234, splits__0__statistics__max_runtime_length=9)
    assert _outcomes(_verified(artifact)) == {"metadata": "differs"}

    change_manifest(artifact, splits__0__statistics__max_runtime_length=6)
    ledger = artifact / "plan" / "dropped.jsonl"
    entry = json.loads(ledger.read_text())
    ledger.write_text(json.dumps(entry) + "\n" + json.dumps({**entry, "row": 2}) + "\n")
    assert _outcomes(_verified(artifact)) == {"files": "differs", "plan": "differs", "sources": "could not run"}

    restate(artifact)
    assert _outcomes(_verified(artifact)) == {"plan": "differs"}
    assert _outcomes(_verified(artifact, None)) == {"plan": "differs", "other files": "differs"}


@pytest.mark.parametrize("change", ["added", "removed"])
def test_a_sample_compares_what_its_rows_lack(tmp_path: Path, chatml_tokenizer: Path, change: str) -> None:
    weighed = chat_row("What?", "One.")
    weighed["messages"][-1]["weight"] = 0
    rows = write_json_lines(tmp_path / "rows.jsonl", [weighed, chat_row("What?", "One.")])
    recipe = small_recipe(rows, chatml_tokenizer, packing={"packed_sequence_size": 64})
    artifact = build(recipe, tmp_path / "packed").output
    ledger = artifact / "plan" / "lost_content.jsonl"
    entry = json.loads(ledger.read_text())
    assert _outcomes(_verified(artifact)) == {}

    ledger.write_text("" if change == "removed" else ledger.read_text() + json.dumps({**entry, "row": 2}) + "\n")
    restate(artifact)

    report = _verified(artifact)
    assert _outcomes(report) == {"lost content": "differs"}
    detail = next(check.detail for check in report.checks if check.name == "lost content")
    of = {"added": "row 2: weight: turn 2", "removed": "row 1: nothing; it is: weight: turn 2"}
    assert "from what the sources " in detail
    assert of[change] in detail


@pytest.mark.parametrize("num_packs", [2, None])
def test_unreadable_shard_is_a_difference(artifact: Path, num_packs: int | None) -> None:
    shard = next((artifact / "training").glob("*.parquet"))
    shard.write_bytes(shard.read_bytes()[:-40])
    report = _verified(artifact, num_packs)

    assert (report.outcome, report.differences[0].causes) == ("differs", ("artifact changed",))
    assert "cannot be read" in str(report.differences[0].in_artifact)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("runtime_length", [1.5] * 12),
        ("runtime_length", ["6"] * 12),
        ("file_index", [3] * 12),
        ("file_index", [-1] * 12),
        ("pack", [9] * 12),
        ("pack", None),
        ("row", [1] * 12),
        ("position", [0] * 12),
    ],
)
def test_no_broken_plan_ends_in_a_traceback(artifact: Path, name: str, values: list[Any] | None) -> None:
    path = artifact / "plan" / "training.parquet"
    columns = pq.read_table(path).to_pydict()
    columns = {key: value for key, value in columns.items() if key != name}
    pq.write_table(pa.table(columns if values is None else {**columns, name: values}), path)
    assert {_verified(artifact, num_packs).outcome for num_packs in (6, None)} == {"differs"}
    for ask in (
        lambda: diff_artifacts(artifact, artifact),
        lambda: trace_pack(TracedRun(Artifact(artifact), RunOptions()), "training", 0, limit=3),
    ):
        with suppress(BridgepackError):
            ask()


@pytest.mark.parametrize("column", ["input_ids", "loss_mask", "seq_start_id"])
def test_no_column_of_another_type_ends_in_a_traceback(artifact: Path, column: str) -> None:
    path = next((artifact / "training").glob("*.parquet"))
    rows = pq.read_table(path).to_pydict()
    rows[column] = [[str(value) for value in values] for values in rows[column]]
    pq.write_table(pa.table(rows), path)

    assert _verified(artifact).outcome == "differs"
    with pytest.raises(ArtifactError):
        diff_artifacts(artifact, artifact)


def test_manifest_without_a_tokenizer_is_refused(artifact: Path) -> None:
    change_manifest(artifact, tokenizer={})
    for ask in (lambda: _verified(artifact), lambda: diff_artifacts(artifact, artifact)):
        with pytest.raises(ArtifactError, match="tokenizer has no name_or_path or no eos_token_id"):
            ask()
