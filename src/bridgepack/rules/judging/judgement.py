"""What rules say of a subject: their violations as findings, which rules ran, and which did not, with the reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import chain

from bridgepack.errors import BridgepackError
from bridgepack.records import Finding
from bridgepack.records.messages import Message, setting
from bridgepack.rules.judging.rows import Offenders, Rows
from bridgepack.rules.judging.rule import Rule, RunRule, Violation


@dataclass(frozen=True, kw_only=True, slots=True)
class SkippedRule:
    """A rule that did not run, with the reason; it did not pass either."""

    code: str
    name: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """What some rules say of one subject; a finding has the host's paths until it is shown."""

    findings: tuple[Finding, ...] = ()
    rules_run: tuple[str, ...] = ()  #: codes of the rules that ran
    rules_skipped: tuple[SkippedRule, ...] = ()
    rules_not_applicable: tuple[str, ...] = ()  #: codes of the rules that do not apply to the versions


def join_judgements(judgements: Iterable[Judgement]) -> Judgement:
    """Return the judgements of several subjects as one: findings in their order, rules sorted by code."""
    parts = tuple(judgements)
    return Judgement(
        findings=tuple(chain.from_iterable(part.findings for part in parts)),
        rules_run=tuple(sorted(chain.from_iterable(part.rules_run for part in parts))),
        rules_skipped=tuple(
            sorted(chain.from_iterable(part.rules_skipped for part in parts), key=lambda rule: rule.code)
        ),
        rules_not_applicable=tuple(sorted(chain.from_iterable(part.rules_not_applicable for part in parts))),
    )


def skip_rules(rules: Iterable[Rule], reason: str) -> Judgement:
    """Return the judgement of rules that do not run, all for the same reason."""
    return Judgement(rules_skipped=tuple(SkippedRule(code=rule.code, name=rule.name, reason=reason) for rule in rules))


class RuleCrashError(BridgepackError):
    """A rule raised an exception, so the check has no result."""


def crash_of(rule: Rule, subject: str, error: Exception) -> BridgepackError:
    """Return the error for a rule that raised an exception on `subject`: of a file that it reads, the exception."""
    if isinstance(error, BridgepackError):
        return error
    return RuleCrashError(
        f"rule {rule.code} ({rule.name}) crashed on {subject}: {type(error).__name__}: {error}. "
        "This is a bug in bridgepack; report it with the artifact's manifest, or the settings that it read."
    )


@dataclass(kw_only=True, slots=True)
class Tally:
    """Violations of one rule: their number, and the first `max_examples`."""

    max_examples: int
    first: list[Violation] = field(default_factory=list)
    num_violations: int = 0

    def add(self, violation: Violation) -> None:
        """Count one violation."""
        self.num_violations += 1
        if len(self.first) < self.max_examples:
            self.first.append(violation)

    def add_offenders(self, offenders: Offenders, rows: Rows, place: Callable[[int], str]) -> None:
        """Count the offenders of one batch; `place` names a pack by its 0-based index in its shard."""
        self.num_violations += len(offenders.rows)
        for offence in range(min(len(offenders.rows), self.max_examples - len(self.first))):
            where = place(int(rows.numbers[offenders.rows[offence]]))
            if offenders.sequences is not None:
                where += f", sequence {offenders.sequences[offence]}"
            violation = Violation(where=where, found=offenders.found(offence), allowed=offenders.allowed)
            self.first.append(violation)

    def merge(self, later: Tally) -> None:
        """Add the violations of a later tally."""
        self.num_violations += later.num_violations
        self.first += later.first[: self.max_examples - len(self.first)]


def findings_of(rule: Rule, violations: Iterable[Violation], *, max_examples: int) -> list[Finding]:
    """Return one finding per group of violations, in order of appearance."""
    tallies: dict[str, Tally] = {}
    for violation in violations:
        tallies.setdefault(violation.group, Tally(max_examples=max_examples)).add(violation)
    return [finding_of(rule, tally) for tally in tallies.values()]


def finding_of(rule: Rule, tally: Tally) -> Finding:
    """Return the finding of a tally with at least one violation."""
    first, why = tally.first[0], rule.summary.rstrip(".")
    changes = [replace(change, why=change.why or why) for violation in tally.first for change in violation.changes]
    assert rule.is_fixable or not changes, "a rule with changes is a fixable_rule"
    return Finding(
        code=rule.code,
        name=rule.name,
        severity=rule.severity,
        where=_place(rule, first),
        found=first.found,
        allowed=first.allowed,
        why=rule.why,
        fix=first.fix or rule.fix,
        num_occurrences=tally.num_violations,
        examples=tuple(_place(rule, violation) for violation in tally.first),
        changes=tuple({repr(change): change for change in changes}.values()),  # a section cannot be hashed
        noticed=rule.noticed,
    )


def _place(rule: Rule, violation: Violation) -> str:
    """Return the place of a violation: of a run's it is a setting, unless the rule says that it is another place."""
    where = violation.where
    return setting(where) if isinstance(rule, RunRule) and not isinstance(where, Message) else where
