"""Judges with rules: which of them, on a whole artifact and on a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bridgepack.config.errors import nearest_name
from bridgepack.errors import ConfigError
from bridgepack.records import Finding
from bridgepack.rules.engine.context import CannotJudgeError
from bridgepack.rules.engine.facts import ArtifactFacts
from bridgepack.rules.engine.report import CheckReport, RuleCrashError, SkippedRule, crash_of, findings_of
from bridgepack.rules.engine.rule import ArtifactRule, RowRule, Rule, RunRule, Severity, StructureRule
from bridgepack.rules.engine.scan import ArtifactScan
from bridgepack.rules.engine.subject import Run


def report_of_scan(scan: ArtifactScan, *, rules: Sequence[Rule], max_examples: int = 5) -> CheckReport:
    """Return the report of a scan, after the rules on the whole artifact have judged its facts.

    Raises:
        RuleCrashError: a rule raised.
    """
    findings, skipped = _judge_whole(scan.facts, rules, max_examples)
    reasons = {**scan.skipped, **skipped}
    for rule in rules:
        if isinstance(rule, StructureRule) and not scan.num_rows:
            reasons.setdefault(rule.code, "no row could be read")
        if isinstance(rule, RowRule) and not scan.num_sound_rows:
            reasons.setdefault(rule.code, "no sound row could be read")
    names = {rule.code: rule.name for rule in rules}
    found = [*scan.findings, *findings]
    return CheckReport(
        findings=tuple(sorted(found, key=lambda finding: (Severity(finding.severity).rank, finding.code))),
        rules_run=tuple(sorted(names.keys() - reasons.keys())),
        rules_skipped=tuple(
            SkippedRule(code=code, name=names[code], reason=reason) for code, reason in sorted(reasons.items())
        ),
        num_shards=sum(len(group) for group in scan.facts.shards.values()),
        num_shards_read=scan.num_shards_read,
        num_rows=scan.num_rows,
        num_sound_rows=scan.num_sound_rows,
        num_tokens=scan.num_tokens,
    )


def _judge_whole(
    facts: ArtifactFacts, rules: Sequence[Rule], max_examples: int
) -> tuple[list[Finding], dict[str, str]]:
    findings: list[Finding] = []
    skipped: dict[str, str] = {}
    for rule in rules:
        if not isinstance(rule, ArtifactRule):
            continue
        try:
            findings += findings_of(rule, rule.check(facts), max_examples=max_examples)
        except CannotJudgeError as reason:
            skipped[rule.code] = str(reason)
        except Exception as error:  # whatever a rule raises is that rule's crash
            raise crash_of(rule, "the artifact", error) from error
    return findings, skipped


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


def selected[R: Rule](rules: Sequence[R], *, select: Sequence[str], ignore: Sequence[str]) -> tuple[R, ...]:
    """Return the rules that are selected and not ignored.

    Args:
        rules: to choose from, in order.
        select: codes, names or first characters of codes, e.g. `BP101`, `BP3`, `micro-batch-size-not-one`; all rules
            where it is empty. Upper and lower case are the same.
        ignore: the same; the longer of a selecting and an ignoring prefix wins, as in ruff.
    """
    return tuple(
        rule for rule in rules if _strength(rule, select or ("BP",)) > (_strength(rule, ignore) if ignore else 0)
    )


def check_selectors(rules: Sequence[Rule], selectors: Sequence[str], option: str) -> None:
    """Accept selectors that choose at least one rule.

    Raises:
        ConfigError: one chooses none.
    """
    for selector in selectors:
        if not any(_matches(rule, selector) for rule in rules):
            nearest = nearest_name(selector, [known for rule in rules for known in (rule.code, rule.name)])
            hint = f"Did you mean {nearest}?" if nearest else "`bridgepack rules` lists them."
            raise ConfigError(
                f"{option} is {selector!r}; no rule is called that. Allowed: a code such as BP101, its beginning such "
                f"as BP1, or a name. {hint}"
            )


def _strength(rule: Rule, selectors: Sequence[str]) -> int:
    return max((len(selector) for selector in selectors if _matches(rule, selector)), default=0)


def _matches(rule: Rule, selector: str) -> bool:
    wanted = selector.upper()
    return (wanted.startswith("BP") and rule.code.startswith(wanted)) or selector.lower() == rule.name
