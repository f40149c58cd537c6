"""What a check hands back: findings, what ran, what was skipped and why, how much was looked at."""

from __future__ import annotations

from dataclasses import dataclass

from bridgepack.records import Finding
from bridgepack.rules.engine.rule import Severity


@dataclass(frozen=True, kw_only=True, slots=True)
class SkippedRule:
    """A rule that did not judge; it did not pass either.

    Attributes:
        code: of the rule.
        name: of the rule.
        reason: what it lacked.
    """

    code: str
    name: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Suppressed:
    """A finding that the user's own reason takes away.

    Attributes:
        finding: what was found.
        reason: why it does not matter, as the user wrote it.
    """

    finding: Finding
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckReport:
    """Outcome of a check.

    Attributes:
        findings: worst first, then by code.
        rules_run: codes of the rules that judged, sorted.
        rules_skipped: the others, sorted by code.
        num_shards: shards of the artifact.
        num_shards_read: shards read to the end.
        num_rows: rows read.
        num_sound_rows: rows whose structure holds; only these were given to the rules on widths, ids and masks.
        num_tokens: stored tokens read.
        target: what was checked.
        target_path: the file or folder that it lies in; empty where there is none.
        versions: what it was judged for, in words; empty where no rule asked.
        rules_not_applicable: codes of the rules that do not apply to these versions, sorted.
        suppressed: findings that the user's own reasons take away.
    """

    findings: tuple[Finding, ...]
    rules_run: tuple[str, ...]
    rules_skipped: tuple[SkippedRule, ...]
    num_shards: int = 0
    num_shards_read: int = 0
    num_rows: int = 0
    num_sound_rows: int = 0
    num_tokens: int = 0
    target: str = ""
    target_path: str = ""
    versions: str = ""
    rules_not_applicable: tuple[str, ...] = ()
    suppressed: tuple[Suppressed, ...] = ()

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

    def fails(self, *, strict: bool = False) -> bool:
        """Say whether the check fails: on an error, and on a warning where it is strict."""
        return self.has_errors or (strict and self.num_warnings > 0)

    def _num(self, severity: Severity) -> int:
        return sum(finding.severity == severity for finding in self.findings)


def in_order(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return findings worst first, then by code."""
    return tuple(sorted(findings, key=lambda finding: (Severity(finding.severity).rank, finding.code)))
