"""The engine counts, masks, skips with reasons, and names a rule that crashes."""

import pytest

from bridgepack.rules import ARTIFACT_RULES, CheckReport, RuleCrashError, Severity
from bridgepack.rules.engine.facts import ArtifactFacts
from bridgepack.rules.engine.rule import Violation, artifact_rule
from tests.unit.rules.in_memory_artifact import GOOD_ROWS, check

GOOD = GOOD_ROWS[0]
SHORT_MASK = [[11, 12, 2], [1, 1], [0]]
FINAL_BOUNDARY = [[11, 12, 13, 2, 21, 22, 2], [0, 1, 1, 0, 1, 1, 0], [0, 4, 7]]
UNTRAINED = [[31, 32, 2], [0, 0, 0], [0]]
TOO_WIDE = [[*range(11, 30), 2], [0, *[1] * 18, 0], [0]]
SHARD = "training/shard-00000-of-00001.idx.parquet"


def _codes(report: CheckReport) -> list[str]:
    return [finding.code for finding in report.findings]


def test_clean_artifact() -> None:
    report = check({"rows": {"training": [GOOD]}})
    assert report.findings == ()
    assert not report.has_errors
    assert (report.num_rows, report.num_sound_rows, report.num_tokens) == (1, 1, 7)
    assert (report.num_shards, report.num_shards_read) == (1, 1)
    without_facts = {"BP506", "BP509", "BP511", "BP514", "BP531", "BP532", "BP537"}
    assert _reasons(report).keys() == {"BP312", "BP320", "BP332", "BP334", "BP353", *without_facts}
    assert len(report.rules_run) + len(report.rules_skipped) == len(ARTIFACT_RULES)


def test_offenders_are_counted_and_the_first_ones_named() -> None:
    report = check({"rows": {"training": [GOOD, *[TOO_WIDE] * 7, UNTRAINED]}}, max_examples=3)
    finding, warning = report.findings
    assert (finding.code, finding.severity) == ("BP330", Severity.ERROR)
    assert (warning.code, warning.severity) == ("BP318", Severity.WARNING)
    assert (report.num_errors, report.num_warnings, report.has_errors) == (1, 1, True)
    assert finding.num_occurrences == 7
    assert finding.where == f"{SHARD} row 1"
    assert finding.examples == (f"{SHARD} row 1", f"{SHARD} row 2", f"{SHARD} row 3")
    assert finding.found == "19 runtime tokens"
    assert finding.allowed == "at most packed_sequence_size, 16"


def test_examples_follow_the_splits_whatever_their_size() -> None:
    other = [[31, 32, 33, 2, 41, 42, 2], [0, 1, 1, 0, 1, 1, 1], [0, 4]]
    bad = [[11, 12, 13, 2], [0, 1, 1, 1], [0]]
    report = check({"rows": {"training": [GOOD, bad], "validation": [other]}})
    [finding] = report.findings
    last = "validation/shard-00000-of-00001.idx.parquet row 0, sequence 1"
    assert (finding.num_occurrences, finding.examples) == (2, (f"{SHARD} row 1, sequence 0", last))


def _reasons(report: CheckReport) -> dict[str, str]:
    return {skipped.code: skipped.reason for skipped in report.rules_skipped}


def test_totals_are_not_compared_where_rows_are_missing_from_them() -> None:
    reasons = _reasons(check({"rows": {"training": [GOOD, SHORT_MASK]}}))
    assert reasons["BP348"] == reasons["BP412"] == "no split has only readable and valid rows"
    report = check({"rows": {"training": [SHORT_MASK]}})
    assert _reasons(report)["BP309"] == _reasons(report)["BP330"] == "no valid row could be read"
    assert "BP303" in report.rules_run


def test_no_rule_on_rows_passes_where_nothing_could_be_read() -> None:
    report = check({"set": {"shards/training/0/read_error": "no Parquet magic bytes"}})
    assert _codes(report) == ["BP341"]
    assert {"BP303", "BP309", "BP330", "BP348", "BP405"} <= _reasons(report).keys()
    assert (report.num_shards, report.num_shards_read, report.num_rows) == (1, 0, 0)


def test_shard_that_fails_in_the_middle_is_reported_and_the_others_are_judged() -> None:
    first, second = (f"training/shard-0000{index}-of-00002.idx.parquet" for index in (0, 1))
    case = {"rows": {"training": [GOOD, TOO_WIDE]}, "rows_per_shard": 1}
    report = check(case | {"set": {"read_errors": {first: "row group 3 is corrupt"}}})
    assert _codes(report) == ["BP330", "BP341"]
    assert report.findings[0].where == f"{second} row 0"
    assert (report.findings[1].where, report.findings[1].found) == (first, "row group 3 is corrupt")
    assert (report.num_shards_read, report.num_rows) == (1, 2)


def test_third_party_packs_without_manifest() -> None:
    report = check({"has_manifest": False, "rows": {"training": [GOOD, FINAL_BOUNDARY, TOO_WIDE]}})
    assert _codes(report) == ["BP305"]
    reasons = _reasons(report)
    assert reasons["BP343"] == reasons["BP348"] == reasons["BP401"] == "the artifact has no manifest"
    assert reasons["BP330"] == "packed_sequence_size is not known"
    assert reasons["BP311"] == "vocab_size is not known"
    assert reasons["BP336"] == "eos_token_id is not known"


def test_crash_of_an_artifact_rule_names_the_rule() -> None:
    @artifact_rule("BP398", Severity.ERROR, "test")
    def crashes_too(facts: ArtifactFacts) -> list[Violation]:
        raise KeyError("x")

    with pytest.raises(RuleCrashError, match=r"rule BP398 \(crashes-too\) crashed on the artifact: KeyError"):
        check({}, rules=(crashes_too,))


def test_wrong_statistics_are_one_finding_each() -> None:
    statistics = "manifest/splits/training/statistics"
    report = check({"set": {f"{statistics}/num_packs": 2, f"{statistics}/num_trained_tokens": 5}})
    assert [(finding.code, finding.where, finding.found, finding.allowed) for finding in report.findings] == [
        ("BP348", "manifest.json training num_packs", "2", "1, from the rows"),
        ("BP348", "manifest.json training num_trained_tokens", "5", "4, from the rows"),
    ]
