"""Heuristics on masks: what they must say, and what they must not."""

from __future__ import annotations

from typing import Any

from bridgepack.rules import CheckReport
from tests.unit.rules.in_memory_artifact import check

Row = list[list[Any]]


def _codes(report: CheckReport) -> set[str]:
    return {finding.code for finding in report.findings}


def _rows(sequences: list[tuple[list[int], list[int]]]) -> dict[str, Any]:
    return {"packed_sequence_size": 64, "rows": {"training": [[ids, mask, [0]] for ids, mask in sequences]}}


def test_shifted_mask_with_varied_answers_and_a_constant_header() -> None:
    sequences = [([11, 8, 9, 30 + index, 40 + index, 2], [0, 0, 1, 1, 1, 0]) for index in range(10)]
    assert _codes(check(_rows(sequences))) == set()


def test_unshifted_mask_that_ends_with_a_newline() -> None:
    sequences = [([11, 8, 9, 30 + index, 40 + index, 2, 5], [0, 0, 0, 1, 1, 1, 0]) for index in range(10)]
    assert _codes(check(_rows(sequences))) == {"BP332"}


def test_shifted_mask_without_any_constant_prompt_end() -> None:
    sequences = [([11, 50 + index, 30 + index, 2], [0, 1, 1, 0]) for index in range(10)]
    assert _codes(check(_rows(sequences))) == set()


def test_shifted_mask_whose_runs_cover_the_newline_after_eos() -> None:
    sequences = [([11, 9, 30 + index, 2, 5], [0, 1, 1, 1, 0]) for index in range(10)]
    assert _codes(check(_rows(sequences))) == set()


def test_shifted_mask_with_answers_that_begin_alike() -> None:
    sequences = [([11, 9, 7, 30 + index, 2], [0, 1, 1, 1, 0]) for index in range(10)]
    assert _codes(check(_rows(sequences))) == set()


def test_few_runs_are_no_evidence() -> None:
    sequences = [([11, 9, 30 + index, 2, 5], [0, 0, 1, 1, 0]) for index in range(7)]
    report = check(_rows(sequences))
    reasons = {skipped.code: skipped.reason for skipped in report.rules_skipped}
    assert reasons["BP332"] == "fewer than 8 trained runs begin inside a sequence"


def test_full_loss_is_no_finding_where_the_recipe_says_so() -> None:
    case = _rows([([11, 12, 13, 2], [1, 1, 1, 0])])
    assert _codes(check(case)) == {"BP333"}
    full = check(case | {"context": {"loss_mode": "full"}})
    assert full.findings == ()
    reasons = {skipped.code: skipped.reason for skipped in full.rules_skipped}
    assert reasons["BP333"] == "loss_mode is full: everything is meant to be trained"


def test_one_sequence_with_a_masked_prompt_is_enough_against_trains_everything() -> None:
    assert _codes(check(_rows([([11, 12, 13, 2], [1, 1, 1, 0]), ([11, 12, 13, 2], [0, 1, 1, 0])]))) == set()


def test_full_loss_with_padding_is_seen() -> None:
    case = _rows([([11, 12, 13, 2, 2], [1, 1, 1, 0, 0])]) | {"pad_seq_to_mult": 4}
    assert _codes(check(case)) == {"BP333"}


def test_a_trained_label_after_eos_is_no_trained_padding() -> None:
    assert _codes(check(_rows([([11, 12, 2, 13, 14, 2], [0, 1, 1, 1, 1, 0])]))) == {"BP528"}


def test_eos_inputs_do_not_count_as_trained() -> None:
    report = check(_rows([([11, 2, 13, 14, 15], [0, 1, 0, 0, 0]), ([11, 12, 13, 2], [0, 1, 1, 0])]))
    assert _codes(report) == {"BP318"}


def test_integer_weights_are_reported() -> None:
    report = check(_rows([([11, 12, 13, 2], [0, 2, 1, 0]), ([11, 12, 13, 2], [0, -1, 1, 0])]))
    [finding] = [finding for finding in report.findings if finding.code == "BP310"]
    assert (finding.found, finding.num_occurrences) == ("mask element 2", 2)
