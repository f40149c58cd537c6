"""Every rule reports its bad case, and nothing but it; its good case is clean altogether."""

import pytest

from bridgepack.rules import ARTIFACT_RULES, Rule
from bridgepack.rules.registry import ALL_RULES
from tests.unit.rules.in_memory_artifact import check
from tests.unit.rules.run_cases import CASES, content_of


def test_every_rule_has_cases_and_every_case_a_rule() -> None:
    assert {path.stem for path in CASES.glob("*.json")} == {rule.code for rule in ALL_RULES}


@pytest.mark.parametrize("rule", ARTIFACT_RULES, ids=lambda rule: f"{rule.code}-{rule.name}")
def test_bad_case_is_reported(rule: Rule) -> None:
    content = content_of(rule)
    report = check(content["bad"])
    assert {finding.code for finding in report.findings} == {rule.code, *content.get("also", [])}
    finding = next(finding for finding in report.findings if finding.code == rule.code)
    assert (finding.name, finding.severity, finding.why, finding.fix) == (rule.name, rule.severity, rule.why, rule.fix)
    assert finding.where
    assert finding.found
    assert finding.allowed
    assert finding.examples[0] == finding.where


@pytest.mark.parametrize("rule", ARTIFACT_RULES, ids=lambda rule: f"{rule.code}-{rule.name}")
def test_good_case_is_clean(rule: Rule) -> None:
    report = check(content_of(rule)["good"])
    assert report.findings == ()
    assert rule.code in report.rules_run
