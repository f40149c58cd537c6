"""Heuristics on masks: what they must say, and what they must not."""

from typing import Any

import pytest

from bridgepack.rules import CheckReport
from tests.unit.rules.in_memory_artifact import check


def _codes(report: CheckReport) -> set[str]:
    return {finding.code for finding in report.findings}


def _rows(sequences: list[tuple[list[int], list[int]]]) -> dict[str, Any]:
    return {"packed_sequence_size": 64, "rows": {"training": [[ids, mask, [0]] for ids, mask in sequences]}}


@pytest.mark.parametrize(
    ("ids", "mask", "expected"),
    [
        pytest.param((11, 8, 9, 30, 40, 2), (0, 0, 1, 1, 1, 0), set(), id="shifted, with a constant header"),
        pytest.param((11, 8, 9, 30, 40, 2, 5), (0, 0, 0, 1, 1, 1, 0), {"BP332"}, id="unshifted, ends with a newline"),
        pytest.param((11, 50, 30, 2), (0, 1, 1, 0), set(), id="shifted, prompts end in many ways"),
        pytest.param((11, 9, 30, 2, 5), (0, 1, 1, 1, 0), set(), id="shifted, trains the newline after EOS"),
        pytest.param((11, 9, 7, 30, 2), (0, 1, 1, 1, 0), set(), id="shifted, answers begin alike"),
    ],
)
def test_whether_masks_look_unshifted(ids: tuple[int, ...], mask: tuple[int, ...], expected: set[str]) -> None:
    """Tokens from 30 on are others in each of ten sequences."""
    sequences = [([token + index * (token >= 30) for token in ids], list(mask)) for index in range(10)]
    assert _codes(check(_rows(sequences))) == expected


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
    assert reasons["BP333"] == "loss_mode is full: every label is trained on purpose"


@pytest.mark.parametrize(
    ("sequences", "case", "expected"),
    [
        pytest.param(
            [([11, 12, 13, 2], [1, 1, 1, 0]), ([11, 12, 13, 2], [0, 1, 1, 0])], {}, set(), id="one prompt is masked"
        ),
        pytest.param([([11, 12, 13, 2, 2], [1, 1, 1, 0, 0])], {"pad_seq_to_mult": 4}, {"BP333"}, id="all but padding"),
        pytest.param([([11, 12, 2, 13, 14, 2], [0, 1, 1, 1, 1, 0])], {}, {"BP528"}, id="a label after EOS"),
        pytest.param(
            [([11, 2, 13, 14, 15], [0, 1, 0, 0, 0]), ([11, 12, 13, 2], [0, 1, 1, 0])], {}, {"BP318"}, id="EOS as input"
        ),
    ],
)
def test_what_is_trained(sequences: Any, case: dict[str, Any], expected: set[str]) -> None:
    assert _codes(check(_rows(sequences) | case)) == expected
