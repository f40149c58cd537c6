"""Many violations become few findings: the first places, and how many there are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from bridgepack.records import Finding
from bridgepack.rules.engine.rows import Offenders, RawRows, SoundRows
from bridgepack.rules.engine.rule import Rule, Violation


@dataclass(kw_only=True, slots=True)
class Tally:
    """Violations of one kind: the first ones, and the number of all.

    Attributes:
        max_examples: violations kept.
        first: the first ones.
        num_violations: number of all.
    """

    max_examples: int
    first: list[Violation] = field(default_factory=list)
    num_violations: int = 0

    def add(self, violation: Violation) -> None:
        """Count one violation."""
        self.num_violations += 1
        if len(self.first) < self.max_examples:
            self.first.append(violation)

    def add_offenders(self, offenders: Offenders, shard: str, rows: RawRows | SoundRows) -> None:
        """Count the offenders of one batch."""
        self.num_violations += len(offenders.rows)
        numbers = rows.row_numbers() if isinstance(rows, RawRows) else rows.numbers
        for offence in range(min(len(offenders.rows), self.max_examples - len(self.first))):
            where = f"{shard} row {numbers[offenders.rows[offence]]}"
            if offenders.sequences is not None:
                where += f", sequence {offenders.sequences[offence]}"
            violation = Violation(where=where, found=offenders.found(offence), allowed=offenders.allowed)
            self.first.append(violation)

    def merge(self, later: Tally) -> None:
        """Count the violations of another tally after one's own."""
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
    first = tally.first[0]
    return Finding(
        code=rule.code,
        name=rule.name,
        severity=rule.severity,
        where=first.where,
        found=first.found,
        allowed=first.allowed,
        why=rule.why,
        fix=rule.fix,
        num_occurrences=tally.num_violations,
        examples=tuple(violation.where for violation in tally.first),
        changes=tuple(dict.fromkeys(item for violation in tally.first for item in violation.changes)),
        noticed=rule.noticed,
    )
