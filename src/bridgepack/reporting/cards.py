"""Findings on cards: those of one rule that say the same stand together."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bridgepack.records import Finding


@dataclass(frozen=True, kw_only=True, slots=True)
class FindingCard:
    """A finding, with those of the same rule that say the same of other places."""

    finding: Finding
    similar: tuple[Finding, ...]


def cards_of(findings: Iterable[Finding]) -> Iterator[FindingCard]:
    """Yield cards: findings of one rule, severity and fix together, in the order of the first ones."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.code, finding.severity, finding.fix), []).append(finding)
    for first, *similar in groups.values():
        yield FindingCard(finding=first, similar=tuple(similar))
