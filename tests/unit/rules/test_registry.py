"""Rules are complete, named alike, registered, selected by code or name, and suppressed with a reason."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

import bridgepack.rules
from bridgepack.errors import ConfigError
from bridgepack.host import TARGET
from bridgepack.records import Finding
from bridgepack.rules.judging.judge import check_selectors, judge_run, select_rules
from bridgepack.rules.judging.judgement import RuleCrashError
from bridgepack.rules.judging.rule import Rule, RunRule
from bridgepack.rules.registry import ALL_RULES, FIXING_RULES, RETIRED, RUN_RULES, SUPPRESSION_RULES, group_of
from bridgepack.rules.suppression import SuppressionRule, Suppressions, apply_suppressions
from tests.support.free_codes import free_codes
from tests.support.messages import mentions
from tests.unit.rules import run_cases


def test_codes_and_names_are_unique_and_every_decorated_function_is_collected() -> None:
    assert len({rule.code for rule in ALL_RULES}) == len({rule.name for rule in ALL_RULES}) == len(ALL_RULES)
    decorated = re.compile(r"^@\w*rule\($|^@\w*rule\(\"", re.MULTILINE)
    texts = [path.read_text(encoding="utf-8") for path in Path(bridgepack.rules.__path__[0]).rglob("*.py")]
    assert sum(len(decorated.findall(text)) for text in texts) == len(ALL_RULES) > 300


def test_names_say_pack_for_what_was_built() -> None:
    about_examples = {"BP510", "BP519", "BP543", "BP546", "BP605", "BP643", "BP854", "BP931"}
    about_row_groups = {"BP316"}
    named = {rule.code for rule in ALL_RULES if {"row", "rows"} & set(rule.name.split("-"))}
    assert named == about_examples | about_row_groups


def test_no_code_is_given_again() -> None:
    assert {code for code in RETIRED if not re.fullmatch(r"BP\d\d\d", code)} == set() != RETIRED
    taken = RETIRED | {rule.code for rule in ALL_RULES}
    assert len(taken) == len(RETIRED) + len(ALL_RULES)

    free = free_codes()
    assert set(free.values()) & taken == set()
    assert {title: group_of(code) for title, code in free.items()} == {title: title for title in free}
    assert "Switches of packing" in free


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.code)
def test_rule_says_what_why_and_how_to_fix(rule: Rule) -> None:
    assert re.fullmatch(r"BP\d\d\d", rule.code)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
    assert group_of(rule.code)
    assert rule.judges
    assert set(rule.versions) <= set(TARGET.companions)
    assert callable(rule.check)
    assert isinstance(rule, RunRule) <= bool(rule.noticed and rule.evidence)
    assert re.match(r"The run (crashes|goes on without|hangs|is slow)|Nothing fails", rule.why)
    assert not re.search(r"(^|\. )(Crash|Silent|Slow)\b", rule.why)
    assert rule.summary.endswith(".")
    assert all((rule.source, rule.bad, rule.good, rule.fix))
    assert "\n" not in rule.why + rule.bad + rule.good + rule.fix


def test_the_rules_that_have_changes_are_marked_fixable() -> None:
    """Only they are judged where a recipe becomes a config; one without the mark that proposes a change crashes."""
    fixing = {
        rule.code
        for rule in RUN_RULES
        for case in run_cases.cases_of(rule, "bad")
        for finding in judge_run(run_cases.subject_of(case), [rule]).findings
        if finding.changes
    }
    assert fixing | {"BP044"} == {rule.code for rule in RUN_RULES if rule.is_fixable}  # BP044: a recipe's misspelt name
    assert len(FIXING_RULES) > 100

    [unmarked] = (rule for rule in RUN_RULES if rule.code == "BP004")
    unmarked = dataclasses.replace(unmarked, is_fixable=False)
    with pytest.raises(RuleCrashError):
        judge_run(run_cases.subject_of(run_cases.cases_of(unmarked, "bad")[0]), [unmarked])


def codes(*, select: tuple[str, ...] = (), ignore: tuple[str, ...] = ()) -> set[str]:
    return {rule.code for rule in select_rules(RUN_RULES, select=select, ignore=ignore)}


def test_by_code_beginning_and_name() -> None:
    assert codes() == {rule.code for rule in RUN_RULES}
    assert codes(select=("BP004",)) == {"BP004"}
    assert codes(select=("micro-batch-size-not-one",)) == {"BP004"}
    assert codes(select=("BP1",)) == {rule.code for rule in RUN_RULES if rule.code.startswith("BP1")}
    assert codes(ignore=("BP004",)) == codes() - {"BP004"}
    assert codes(select=("BP004",), ignore=("BP0",)) == {"BP004"}  # the longer selector wins
    assert "BP004" not in codes(select=("BP0",), ignore=("BP004",))
    assert codes(select=("BP004",), ignore=("BP004",)) == set()


@pytest.mark.parametrize("selector", ["BP0O4", "XX1", "BP0041", "micro-batch-size"])
def test_a_selector_of_nothing_is_a_clear_error(selector: str) -> None:
    with pytest.raises(ConfigError, match=r"--select is .*, which matches no rule\. Allowed: a code"):
        check_selectors(ALL_RULES, (selector,), "--select")


CASES = Path(__file__).parents[2] / "rules" / "cases"
TEXTS = {"severity": "error", "where": "a", "found": "b", "allowed": "c", "why": "Crash.", "fix": "Mend it."}


def subject_of(found: list[str], ignored: dict[str, str]) -> Suppressions:
    return Suppressions(
        user_reasons=ignored,
        known_codes={"BP001", "BP002", "BP003"},
        retired_codes={"BP006"},
        judged_codes={"BP001", "BP002"},
        found_codes=found,
    )


def applied(found: list[str], ignored: dict[str, str]) -> tuple[list[str], list[str]]:
    subject = subject_of(found, ignored)
    findings = [Finding(code=code, name="a-name", **TEXTS) for code in found]
    kept, suppressed = apply_suppressions(findings, subject, SUPPRESSION_RULES)
    return [item.code for item in kept], [item.finding.code for item in suppressed]


@pytest.mark.parametrize(
    ("found", "ignored", "expected"),
    [
        (["BP001", "BP002"], {"BP001": "old run"}, (["BP002"], ["BP001"])),
        (["BP001"], {"BP001": "  "}, (["BP001", "BP992"], [])),
        ([], {"BP003": "no artifact yet"}, ([], [])),
    ],
    ids=["a reason", "no reason", "a rule that did not judge"],
)
def test_a_reason_takes_a_finding_away(found: list[str], ignored: dict[str, str], expected: Any) -> None:
    assert applied(found, ignored) == expected


def test_a_retired_code_is_told_from_a_typing_error() -> None:
    subject = subject_of([], {"BP006": "old host", "BP0O6": "a letter instead of a digit"})
    kept, _ = apply_suppressions([], subject, SUPPRESSION_RULES)
    assert [(item.code, item.where) for item in kept] == [("BP991", "ignore.BP006"), ("BP991", "ignore.BP0O6")]
    retired, mistyped = kept
    assert mentions(retired.found, "retired rule")
    assert retired.allowed == "no entry"
    assert mistyped.found == "'BP0O6'"
    assert mentions(mistyped.allowed, "code of a rule")


@pytest.mark.parametrize("rule", SUPPRESSION_RULES, ids=lambda rule: rule.code)
def test_case(rule: SuppressionRule) -> None:
    content = json.loads((CASES / f"{rule.code}.json").read_text(encoding="utf-8"))
    bad, good = ((case["found"], case["ignored"]) for case in (content["bad"], content["good"]))
    assert applied(*bad)[0] == [*content["bad"].get("stay", []), rule.code]
    assert applied(*good)[0] == []
