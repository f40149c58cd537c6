"""Judging counts, masks, skips with reasons, and names a rule that crashes; how rows are cut never shows."""

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import Mock, call

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridgepack.records import ShardFacts
from bridgepack.records.checks import Progress
from bridgepack.rules.judging.facts import ArtifactFacts
from bridgepack.rules.judging.judgement import RuleCrashError
from bridgepack.rules.judging.part import PartScan, ShardPart, parts_of
from bridgepack.rules.judging.report import CheckReport
from bridgepack.rules.judging.rows import Offenders, Rows
from bridgepack.rules.judging.rule import Severity, Violation, artifact_rule, row_rule
from bridgepack.rules.judging.scan import Execution
from bridgepack.rules.registry import ARTIFACT_RULES
from tests.support.examples import examples
from tests.support.judging import judge_artifact
from tests.support.messages import mentions
from tests.unit.rules.in_memory_artifact import GOOD_ROWS, InMemoryArtifact, Row, artifact, check

GOOD = GOOD_ROWS[0]
SHORT_MASK = [[11, 12, 2], [1, 1], [0]]
FINAL_BOUNDARY = [[11, 12, 13, 2, 21, 22, 2], [0, 1, 1, 0, 1, 1, 0], [0, 4, 7]]
UNTRAINED = [[31, 32, 2], [0, 0, 0], [0]]
TOO_WIDE = [[*range(11, 30), 2], [0, *[1] * 18, 0], [0]]
EMPTY: Row = [[], [], []]
SHARD = "training/shard-00000-of-00001.idx.parquet"


def _codes(report: CheckReport) -> list[str]:
    return [finding.code for finding in report.findings]


def test_clean_artifact() -> None:
    report = check({"rows": {"training": [GOOD]}})
    assert (report.findings, report.has_errors) == ((), False)
    assert (report.num_rows, report.num_sound_rows, report.num_tokens) == (1, 1, 7)
    assert (report.num_shards, report.num_shards_read) == (1, 1)
    without_facts = {"BP506", "BP509", "BP511", "BP514", "BP531", "BP532", "BP537"}
    without_facts |= {"BP555", "BP556", "BP557", "BP558"}
    assert _reasons(report).keys() == {"BP312", "BP320", "BP332", "BP334", "BP353", *without_facts}
    assert len(report.rules_run) + len(report.rules_skipped) == len(ARTIFACT_RULES)


def test_offenders_are_counted_and_the_first_ones_named() -> None:
    report = check({"rows": {"training": [GOOD, *[TOO_WIDE] * 7, UNTRAINED]}}, max_examples=3)
    finding, warning = report.findings
    assert (finding.code, finding.severity) == ("BP330", Severity.ERROR)
    assert (warning.code, warning.severity) == ("BP318", Severity.WARNING)
    assert (report.num_errors, report.num_warnings, report.has_errors) == (1, 1, True)
    assert (finding.num_occurrences, finding.where) == (7, f"{SHARD} pack 1")
    assert finding.examples == (f"{SHARD} pack 1", f"{SHARD} pack 2", f"{SHARD} pack 3")
    assert (finding.found, finding.allowed) == ("19 runtime tokens", "at most packed_sequence_size, 16")


def test_examples_follow_the_splits_whatever_their_size() -> None:
    other = [[31, 32, 33, 2, 41, 42, 2], [0, 1, 1, 0, 1, 1, 1], [0, 4]]
    bad = [[11, 12, 13, 2], [0, 1, 1, 1], [0]]
    report = check({"rows": {"training": [GOOD, bad], "validation": [other]}})
    [finding] = report.findings
    last = "validation/shard-00000-of-00001.idx.parquet pack 0, sequence 1"
    assert (finding.num_occurrences, finding.examples) == (2, (f"{SHARD} pack 1, sequence 0", last))


def _reasons(report: CheckReport) -> dict[str, str]:
    return {skipped.code: skipped.reason for skipped in report.rules_skipped}


def test_totals_are_not_compared_where_rows_are_missing_from_them() -> None:
    reasons = _reasons(check({"rows": {"training": [GOOD, SHORT_MASK]}}))
    assert reasons["BP348"] == reasons["BP412"]
    assert mentions(reasons["BP348"], "no split ", "valid packs")
    report = check({"rows": {"training": [SHORT_MASK]}})
    assert _reasons(report)["BP309"] == _reasons(report)["BP330"]
    assert "no valid pack " in _reasons(report)["BP309"]
    assert "BP303" in report.rules_run
    report = check({"set": {"shards/training/0/read_error": "no Parquet magic bytes"}})
    assert _codes(report) == ["BP341"]
    assert {"BP303", "BP309", "BP330", "BP348", "BP405"} <= _reasons(report).keys()
    assert (report.num_shards, report.num_shards_read, report.num_rows) == (1, 0, 0)
    alone = [rule for rule in ARTIFACT_RULES if rule.code == "BP330"]
    report = check({"rows": {"training": [EMPTY, GOOD, SHORT_MASK, TOO_WIDE]}}, rules=alone)
    assert (_codes(report), report.rules_run) == (["BP330"], ("BP330",))
    assert (report.num_rows, report.num_sound_rows) == (4, 2)


def test_shard_that_fails_in_the_middle_is_reported_and_the_others_are_judged() -> None:
    first, second = (f"training/shard-0000{index}-of-00002.idx.parquet" for index in (0, 1))
    case = {"rows": {"training": [GOOD, TOO_WIDE]}, "rows_per_shard": 1}
    report = check(case | {"set": {"read_errors": {first: "row group 3 is corrupt"}}})
    assert _codes(report) == ["BP330", "BP341"]
    assert report.findings[0].where == f"{second} pack 1"
    assert (report.findings[1].where, report.findings[1].found) == (first, "row group 3 is corrupt")
    assert (report.num_shards_read, report.num_rows) == (1, 2)


def test_third_party_packs_without_manifest() -> None:
    report = check({"has_manifest": False, "rows": {"training": [GOOD, FINAL_BOUNDARY, TOO_WIDE]}})
    assert _codes(report) == ["BP305"]
    reasons = _reasons(report)
    assert reasons["BP343"] == reasons["BP348"] == reasons["BP401"]
    assert "no manifest" in reasons["BP343"]
    assert reasons["BP330"] == "packed_sequence_size is not known"
    assert reasons["BP311"] == "vocab_size is not known"
    assert reasons["BP336"] == "eos_token_id is not known"


def test_a_crash_names_the_rule_and_the_shard_when_it_is_pickled() -> None:
    @artifact_rule("BP398", Severity.ERROR, "test")
    def crashes_too(facts: ArtifactFacts) -> list[Violation]:
        raise KeyError("x")

    @row_rule("BP399", Severity.ERROR, "test")
    def always_crashes(rows: Rows) -> Offenders | None:
        raise IndexError(rows.num_rows)

    with pytest.raises(RuleCrashError, match=r"rule BP398 \(crashes-too\) crashed .*: KeyError"):
        check({}, rules=(crashes_too,))
    with pytest.raises(RuleCrashError) as caught:
        check({}, rules=(always_crashes,))
    message = str(pickle.loads(pickle.dumps(caught.value)))  # noqa: S301 (our own bytes)
    assert message.startswith(f"rule BP399 (always-crashes) crashed on {SHARD}: IndexError: 1.")


def test_wrong_statistics_are_one_finding_each() -> None:
    statistics = "manifest/splits/training/statistics"
    report = check({"set": {f"{statistics}/num_packs": 2, f"{statistics}/num_trained_tokens": 5}})
    assert [(finding.code, finding.where, finding.found, finding.allowed) for finding in report.findings] == [
        ("BP348", "manifest.json training num_packs", "2", "1, from the packs"),
        ("BP348", "manifest.json training num_trained_tokens", "5", "4, from the packs"),
    ]


OUT_OF_VOCABULARY: Row = [[11, 2000, 13, 2], [0, 1, 1, 0], [0]]
ROWS = st.lists(st.sampled_from([GOOD, SHORT_MASK, FINAL_BOUNDARY, TOO_WIDE, UNTRAINED, OUT_OF_VOCABULARY, EMPTY]))


def _in_row_groups(case: dict[str, Any]) -> InMemoryArtifact:
    """Return the artifact of a case with a row group for each row."""
    whole = artifact(case)

    def cut(shard: ShardFacts) -> ShardFacts:
        tokens = tuple(len(row[0]) for row in whole.rows[shard.path])
        return replace(shard, row_group_rows=(1,) * len(tokens), row_group_tokens=tokens, sha256=None)

    return replace(whole, shards={split: tuple(map(cut, group)) for split, group in whole.shards.items()})


@given(st.lists(st.integers(0, 300), min_size=1, max_size=30), st.integers(1, 400))
def test_parts_hold_every_row_group_once(tokens: list[int], part_tokens: int) -> None:
    groups = {"row_group_rows": (1,) * len(tokens), "row_group_tokens": tuple(tokens)}
    shard = ShardFacts(path="a", exists=True, num_bytes=12345, **groups)
    parts = list(parts_of("training", shard, part_tokens=part_tokens))
    found = [group for part in parts for group in (part.row_groups or range(len(tokens)))]
    assert found == list(range(len(tokens)))
    assert sum(part.num_bytes for part in parts) == 12345
    assert [part.first_row for part in parts] == [(part.row_groups or range(1)).start for part in parts]


@examples(0.4)
@given(ROWS, ROWS, st.integers(1, 60), st.integers(1, 60), st.integers(1, 4))
def test_the_cut_never_shows(
    training: list[Row], validation: list[Row], part_tokens: int, max_tokens: int, rows_per_shard: int
) -> None:
    rows = {"training": training, "validation": validation}
    subject = _in_row_groups({"rows": rows, "rows_per_shard": rows_per_shard})
    whole = judge_artifact(subject, execution=Execution(part_tokens=10**9, max_tokens=10**9))
    cut = judge_artifact(subject, execution=Execution(part_tokens=part_tokens, max_tokens=max_tokens))
    assert cut == whole
    assert whole[1].counts.num_rows == len(training) + len(validation)


def test_files_are_hashed_before_their_rows_are_read_and_the_facts_have_the_hashes() -> None:
    subject = _in_row_groups({"rows": {"training": [GOOD] * 20}, "rows_per_shard": 1})
    order: list[str] = []

    def run(function: Any, parts: Iterable[ShardPart]) -> Iterator[PartScan]:
        for part in parts:
            order.append("hash" if part.is_file else "part")
            yield function(part)

    _, facts = judge_artifact(subject, execution=Execution(run_tasks=run))
    assert order == (["hash"] * 8 + ["part"] * 8) * 2 + ["hash"] * 4 + ["part"] * 4
    assert {shard.sha256 for shard in facts.shards["training"]} == {f"hash of {path}" for path in subject.rows}


def test_progress_ends_at_its_total() -> None:
    listener, total = Mock(spec=Progress), 2 * (105 + 101)
    subject = _in_row_groups({"rows": {"training": [GOOD] * 5, "validation": [UNTRAINED]}})
    judge_artifact(subject, execution=Execution(part_tokens=16, progress=listener))
    start, *steps, end = listener.mock_calls
    assert (start, end) == (call.start("Checking", total, "packs"), call.finish())
    assert sum(step.kwargs["work"] for step in steps) == total
    assert sum(step.args[0] for step in steps) == 6
