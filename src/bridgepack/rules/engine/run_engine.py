"""Runs the rules on a run: settings, and whatever else is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bridgepack.records import Finding
from bridgepack.rules.engine.context import CannotJudgeError
from bridgepack.rules.engine.report import SkippedRule
from bridgepack.rules.engine.run_rule import RunRule
from bridgepack.rules.engine.scanning import RuleCrashError
from bridgepack.rules.engine.subject import Run
from bridgepack.rules.engine.tally import findings_of


@dataclass(frozen=True, kw_only=True, slots=True)
class RunJudgement:
    """What the rules say about a run.

    Attributes:
        findings: in the order of the rules.
        rules_run: codes of the rules that judged.
        rules_skipped: rules that lacked something.
        rules_not_applicable: rules that do not apply to these versions of the host.
    """

    findings: tuple[Finding, ...]
    rules_run: tuple[str, ...]
    rules_skipped: tuple[SkippedRule, ...]
    rules_not_applicable: tuple[str, ...]


def judge_run(run: Run, rules: Sequence[RunRule], *, max_examples: int = 5) -> RunJudgement:
    """Return what the rules say about a run.

    Raises:
        RuleCrashError: a rule raised.
    """
    findings: list[Finding] = []
    ran: list[str] = []
    skipped: list[SkippedRule] = []
    not_applicable: list[str] = []
    for rule in rules:
        if not run.versions.are_in(rule.versions):
            not_applicable.append(rule.code)
            continue
        try:
            findings += findings_of(rule, list(rule.violations(run)), max_examples=max_examples)
        except CannotJudgeError as reason:
            skipped.append(SkippedRule(code=rule.code, name=rule.name, reason=str(reason)))
        except Exception as error:  # whatever a rule raises is that rule's crash
            raise RuleCrashError(
                f"rule {rule.code} ({rule.name}) crashed on {run.config.place}: {type(error).__name__}: {error}. "
                "This is a bug in bridgepack; report it with the settings it was given."
            ) from error
        else:
            ran.append(rule.code)
    return RunJudgement(
        findings=tuple(findings),
        rules_run=tuple(ran),
        rules_skipped=tuple(skipped),
        rules_not_applicable=tuple(not_applicable),
    )


def without_doubles(findings: Sequence[Finding], rules: Sequence[RunRule]) -> tuple[Finding, ...]:
    """Return findings without those that a rule on runs reports as well, and better."""
    found = {finding.code for finding in findings}
    doubles = {rule.instead_of for rule in rules if rule.code in found}
    return tuple(finding for finding in findings if finding.code not in doubles)
