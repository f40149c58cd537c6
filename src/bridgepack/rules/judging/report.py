"""The report of a check: findings, rules run, rules skipped with reasons, and how much was read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from bridgepack.records import Finding, HostVerdict, Upgrade
from bridgepack.records.results import Result
from bridgepack.records.words import count_text
from bridgepack.rules.judging.judgement import SkippedRule
from bridgepack.rules.judging.rule import Severity, rule_page

#: Version of the JSON; keys are only ever added.
JSON_FORMAT_VERSION = 1
#: Counts of a report that its JSON has under the same names.
_COUNTS = (
    *("num_errors", "num_warnings", "num_advice"),
    *("num_shards", "num_shards_read", "num_rows", "num_sound_rows", "num_tokens"),
)


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
        ran = f"{count_text(len(self.rules_run), 'rule')} ran, {len(self.rules_skipped):,} did not"
        totals = {"error": self.num_errors, "warning": self.num_warnings}
        numbers = ", ".join(count_text(number, noun) for noun, number in totals.items() if number)
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
            "rules_skipped": [asdict(rule) for rule in self.rules_skipped],
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
