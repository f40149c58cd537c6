"""The report of a check: findings, rules run, rules skipped with reasons, and how much was read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

from bridgepack.errors import BridgepackError
from bridgepack.records import Finding, HostVerdict, Upgrade
from bridgepack.records.results import Result
from bridgepack.records.words import counted
from bridgepack.rules.judging.rows import Offenders, Rows
from bridgepack.rules.judging.rule import Rule, Severity, Violation, rule_page

#: Version of the JSON; keys are only ever added.
JSON_FORMAT_VERSION = 1
#: Counts of a report that its JSON has under the same names.
_COUNTS = (
    *("num_errors", "num_warnings", "num_advice"),
    *("num_shards", "num_shards_read", "num_rows", "num_sound_rows", "num_tokens"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SkippedRule:
    """A rule that did not run, with the reason; it did not pass either."""

    code: str
    name: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Suppressed:
    """A finding that the user ignores, with the user's reason."""

    finding: Finding
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckReport(Result):
    """Result of a check.

    Attributes:
        findings: worst first, then by code.
        rules_run: codes of the rules that ran, sorted.
        rules_skipped: the rules that did not run, sorted by code.
        num_shards: shards of the artifact.
        num_shards_read: shards read to the end.
        num_rows: rows read.
        num_sound_rows: rows with valid structure; the rules on widths, ids and masks judge only these.
        num_tokens: stored tokens read.
        target: the run or artifact that was checked.
        target_path: its file or folder; empty if it has none.
        versions: the versions that it was judged for, as text; empty if no rule depends on them.
        note: what to know of these versions before anything else, e.g. that they are newer than all that is known.
        upgrade: what a later Megatron-Bridge, which was asked for, changes for the run; None if none was.
        rules_not_applicable: codes of the rules that do not apply to these versions, sorted.
        suppressed: findings that the user ignores with a reason.
        unjudged: skipped rules that were asked for by code or name, or all that were asked for if none ran.
        host: what the installed Megatron-Bridge itself says of the run; None if it was not asked.
    """

    TABLE: ClassVar = "findings"

    findings: tuple[Finding, ...] = ()
    rules_run: tuple[str, ...] = ()
    rules_skipped: tuple[SkippedRule, ...] = ()
    num_shards: int = 0
    num_shards_read: int = 0
    num_rows: int = 0
    num_sound_rows: int = 0
    num_tokens: int = 0
    target: str = ""
    target_path: str = ""
    versions: str = ""
    note: str = ""
    upgrade: Upgrade | None = None
    rules_not_applicable: tuple[str, ...] = ()
    suppressed: tuple[Suppressed, ...] = ()
    unjudged: tuple[SkippedRule, ...] = ()
    host: HostVerdict | None = None

    @property
    def num_errors(self) -> int:
        """Findings of severity error."""
        return self._num(Severity.ERROR)

    @property
    def num_warnings(self) -> int:
        """Findings of severity warning."""
        return self._num(Severity.WARNING)

    @property
    def num_advice(self) -> int:
        """Findings of severity advice."""
        return self._num(Severity.ADVICE)

    @property
    def has_errors(self) -> bool:
        """Whether at least one finding is an error."""
        return self.num_errors > 0

    def headline(self) -> str:
        """Return what came out, in one line."""
        ran = f"{counted(len(self.rules_run), 'rule')} ran, {len(self.rules_skipped):,} did not"
        found = {"error": self.num_errors, "warning": self.num_warnings}
        numbers = ", ".join(counted(number, noun) for noun, number in found.items() if number)
        return f"{self.target or 'the packs'}: {numbers or 'no errors, no warnings'}; {ran}"

    def fails(self, *, strict: bool = False) -> bool:
        """Return whether the check fails: on an error, and with `strict` also on a warning."""
        return self.has_errors or (strict and self.num_warnings > 0)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values with stable keys, as `check --json` prints it."""
        return {
            "format_version": JSON_FORMAT_VERSION,
            "target": self.target,
            "versions": self.versions,
            "summary": {
                "num_suppressed": len(self.suppressed),
                "num_rules_run": len(self.rules_run),
                "num_rules_skipped": len(self.rules_skipped),
                **{name: getattr(self, name) for name in _COUNTS},
            },
            "findings": [finding_to_dict(finding) for finding in self.findings],
            "suppressed": [{**finding_to_dict(item.finding), "reason": item.reason} for item in self.suppressed],
            "rules_run": list(self.rules_run),
            "rules_skipped": [asdict(skipped) for skipped in self.rules_skipped],
            "rules_not_applicable": list(self.rules_not_applicable),
            "real_validate": None if self.host is None else {**asdict(self.host), "where": list(self.host.where)},
            "note": self.note,
            "upgrade": None
            if self.upgrade is None
            else {**asdict(self.upgrade), "changes": [asdict(change) for change in self.upgrade.changes]},
        }

    def _num(self, severity: Severity) -> int:
        return sum(finding.severity == severity for finding in self.findings)


def finding_to_dict(finding: Finding) -> dict[str, Any]:
    """Return a finding as plain values with stable keys."""
    values = asdict(finding)
    return {
        **values,
        "severity": str(finding.severity),
        "url": rule_page(finding.code),
        "changes": list(values["changes"]),
        "examples": list(finding.examples),
    }


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings worst first, then by code."""
    return tuple(sorted(findings, key=lambda finding: (Severity(finding.severity).rank, finding.code)))


def skip_rules(rules: Iterable[Rule], reason: str) -> tuple[SkippedRule, ...]:
    """Return rules as skipped, all for the same reason."""
    return tuple(SkippedRule(code=rule.code, name=rule.name, reason=reason) for rule in rules)


class RuleCrashError(BridgepackError):
    """A rule raised an exception, so the check has no result."""


def crash_of(rule: Rule, subject: str, error: Exception) -> RuleCrashError:
    """Return the error for a rule that raised an exception on `subject`."""
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
    changes = (replace(one, why=one.why or why) for violation in tally.first for one in violation.changes)
    return Finding(
        code=rule.code,
        name=rule.name,
        severity=rule.severity,
        where=first.where,
        found=first.found,
        allowed=first.allowed,
        why=rule.why,
        fix=first.fix or rule.fix,
        num_occurrences=tally.num_violations,
        examples=tuple(violation.where for violation in tally.first),
        changes=tuple({repr(one): one for one in changes}.values()),  # a section cannot be hashed
        noticed=rule.noticed,
    )
