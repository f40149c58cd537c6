"""What a check hands back: findings, what ran, what was skipped and why, how much was looked at."""

from __future__ import annotations

from dataclasses import dataclass

from bridgepack.records import Finding
from bridgepack.rules.rule import Severity


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
class CheckReport:
    """Outcome of a check.

    Attributes:
        findings: errors first, then by code.
        rules_run: codes of the rules that judged, sorted.
        rules_skipped: the others, sorted by code.
        num_shards: shards of the artifact.
        num_shards_read: shards read to the end.
        num_rows: rows read.
        num_sound_rows: rows whose structure holds; only these were given to the rules on widths, ids and masks.
        num_tokens: stored tokens read.
    """

    findings: tuple[Finding, ...]
    rules_run: tuple[str, ...]
    rules_skipped: tuple[SkippedRule, ...]
    num_shards: int
    num_shards_read: int
    num_rows: int
    num_sound_rows: int
    num_tokens: int

    @property
    def num_errors(self) -> int:
        """Findings of severity error."""
        return sum(finding.severity == Severity.ERROR for finding in self.findings)

    @property
    def num_warnings(self) -> int:
        """Findings of severity warning."""
        return len(self.findings) - self.num_errors

    @property
    def has_errors(self) -> bool:
        """Whether at least one finding is an error."""
        return self.num_errors > 0
