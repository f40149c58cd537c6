"""Every rule on runs reports its bad case and not its good one; its changes mend what they say they mend."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from bridgepack.records import Finding
from bridgepack.rules.engine.judge import judge_run
from bridgepack.rules.engine.rule import RunRule, Severity
from bridgepack.rules.registry import RUN_RULES
from tests.unit.rules.run_cases import set_value, subject_of

CASES = Path(__file__).parents[2] / "rules" / "cases"
each_rule = pytest.mark.parametrize("rule", RUN_RULES, ids=lambda rule: f"{rule.code}-{rule.name}")


def _case(rule: RunRule) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((CASES / f"{rule.code}.json").read_text(encoding="utf-8"))
    return content


def _bad_cases(rule: RunRule) -> list[dict[str, Any]]:
    bad = _case(rule)["bad"]
    return bad if isinstance(bad, list) else [bad]


def _good_cases(rule: RunRule) -> list[dict[str, Any]]:
    good = _case(rule)["good"]
    return good if isinstance(good, list) else [good]


@each_rule
def test_bad_case_is_reported(rule: RunRule) -> None:
    for case in _bad_cases(rule):
        judgement = judge_run(subject_of(case), [rule])
        assert [finding.code for finding in judgement.findings], f"not reported: {case}"
        for finding in judgement.findings:
            assert (finding.code, finding.severity) == (rule.code, rule.severity)
            assert finding.where
            assert finding.found
            assert finding.allowed


@each_rule
def test_good_case_is_judged_and_passes(rule: RunRule) -> None:
    for case in _good_cases(rule):
        judgement = judge_run(subject_of(case), [rule])
        assert judgement.findings == ()
        assert judgement.rules_run == (rule.code,)


@each_rule
def test_good_case_breaks_no_other_rule(rule: RunRule) -> None:
    for case in _good_cases(rule):
        judgement = judge_run(subject_of(case), RUN_RULES)
        allowed = set(_case(rule).get("also_in_good", []))
        assert {found.code for found in judgement.findings if found.severity != Severity.ADVICE} <= allowed


@each_rule
def test_changes_mend_the_bad_case(rule: RunRule) -> None:
    for case in _bad_cases(rule):
        subject = subject_of(case)
        findings = judge_run(subject, [rule]).findings
        if not all(finding.changes for finding in findings):
            continue
        values = copy.deepcopy(dict(subject.config.values))
        for change in _changes(findings):
            set_value(values, change.path, change.value)
        mended = dataclasses.replace(subject, config=dataclasses.replace(subject.config, values=values))
        assert judge_run(mended, [rule]).findings == ()


def test_the_healthy_run_is_clean() -> None:
    findings = judge_run(subject_of({}), RUN_RULES).findings
    assert [found for found in findings if found.severity != Severity.ADVICE] == []


def _changes(findings: tuple[Finding, ...]) -> list[Any]:
    return [change for finding in findings for change in finding.changes]
