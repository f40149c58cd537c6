"""Which rows gave no sequence: counts, the first few of each reason, and a line for every one."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bridgepack.data.files import replaced_when_whole
from bridgepack.data.stages.finish import EXAMPLES_PER_REASON, RangePart
from bridgepack.records import Drop


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitDrops:
    """The drops of a split; there may be millions, so their lines stay in files.

    Attributes:
        counts: reason -> drops, in the order in which the reasons first occur.
        examples: the first few of each reason, in input order.
        ledgers: files with a line for every drop, in input order.
    """

    counts: Mapping[str, int]
    examples: tuple[Drop, ...]
    ledgers: tuple[Path, ...]

    @property
    def total(self) -> int:
        """Number of drops."""
        return sum(self.counts.values())

    def most_common(self) -> dict[str, int]:
        """Return the number of drops per reason, most frequent first."""
        return dict(Counter(self.counts).most_common())


def gather_drops(parts: Sequence[RangePart]) -> SplitDrops:
    """Return the drops of a split's ranges, which are given in order."""
    counts: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    examples = []
    for part in parts:
        counts.update(part.drops)
        for drop in part.examples:
            seen[drop.reason] += 1
            if seen[drop.reason] <= EXAMPLES_PER_REASON:
                examples.append(drop)
    return SplitDrops(
        counts={str(reason): count for reason, count in counts.items()},
        examples=tuple(examples),
        ledgers=tuple(part.ledger for part in parts if part.ledger is not None),
    )


def write_dropped_rows(path: Path, splits: Sequence[SplitDrops]) -> None:
    """Write the ledger: one JSON line per dropped row, split after split, in input order."""
    with replaced_when_whole(path) as temporary, temporary.open("wb") as target:
        for drops in splits:
            for ledger in drops.ledgers:
                with ledger.open("rb") as source:
                    shutil.copyfileobj(source, target)
