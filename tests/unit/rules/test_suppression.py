"""A reason takes a finding away; a reason that is of no use is reported."""

import json
from pathlib import Path
from typing import Any

import pytest

from bridgepack.records import Finding
from bridgepack.rules.registry import SUPPRESSION_RULES
from bridgepack.rules.suppression import SuppressionRule, Suppressions, apply_suppressions

CASES = Path(__file__).parents[2] / "rules" / "cases"


def finding(code: str) -> Finding:
    return Finding(
        code=code, name="a-name", severity="error", where="a", found="b", allowed="c", why="Crash.", fix="Mend it."
    )


def applied(case: dict[str, Any]) -> tuple[list[str], list[str]]:
    subject = Suppressions(
        ignored=case["ignored"],
        known_codes={"BP001", "BP002", "BP003"},
        judged_codes={"BP001", "BP002"},
        found_codes=case["found"],
    )
    found, suppressed = apply_suppressions([finding(code) for code in case["found"]], subject, SUPPRESSION_RULES)
    return [item.code for item in found], [item.finding.code for item in suppressed]


def test_a_reason_takes_a_finding_away() -> None:
    assert applied({"found": ["BP001", "BP002"], "ignored": {"BP001": "old run"}}) == (["BP002"], ["BP001"])


def test_without_a_reason_the_finding_stays() -> None:
    assert applied({"found": ["BP001"], "ignored": {"BP001": "  "}}) == (["BP001", "BP992"], [])


def test_a_rule_that_did_not_judge_is_not_called_unused() -> None:
    assert applied({"found": [], "ignored": {"BP003": "no artifact yet"}}) == ([], [])


@pytest.mark.parametrize("rule", SUPPRESSION_RULES, ids=lambda rule: rule.code)
def test_case(rule: SuppressionRule) -> None:
    content = json.loads((CASES / f"{rule.code}.json").read_text(encoding="utf-8"))
    assert applied(content["bad"])[0] == [*content["bad"].get("stay", []), rule.code]
    assert applied(content["good"])[0] == []
