"""Puts the outcomes of a scan's tasks together, in their order, as they come."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from bridgepack.records import Finding, ShardFacts
from bridgepack.rules.artifact.shards import why_not_streamable
from bridgepack.rules.engine.overlap import OverlapFinder, SharedSequences
from bridgepack.rules.engine.rule import Rule
from bridgepack.rules.engine.scanning import PartScan
from bridgepack.rules.engine.tally import Tally, finding_of
from bridgepack.rules.engine.tasks import ScanPlan, TaskResult
from bridgepack.rules.engine.totals import SplitTotals
from bridgepack.rules.engine.truth import SplitTruth


class MergedScans:
    """Accumulator of a scan: `add` each result in the order of the tasks."""

    def __init__(self, plan: ScanPlan, *, max_examples: int) -> None:
        self.num_rows = self.num_sound_rows = self.num_tokens = 0
        self.unreadable: dict[str, str] = {}
        self.skipped: dict[str, str] = {}
        self._plan = plan
        self._max_examples = max_examples
        self._hashes: dict[str, str] = {}
        self._tallies: dict[tuple[str, str], Tally] = {}
        self._totals = {split: SplitTotals() for split in plan.shards}
        self._incomplete = {
            split for split, group in plan.shards.items() if any(why_not_streamable(shard) for shard in group)
        }
        by_size = plan.splits_by_size
        self._overlap = OverlapFinder(largest_split=by_size[-1] if by_size else "")

    def add(self, result: TaskResult) -> int:
        """Take in one result and return how many rows it judged."""
        if not isinstance(result, PartScan):
            self._hashes[result.shard] = result.sha256
            return 0
        split, shard = result.part.split, result.part.shard
        self.num_rows += result.num_rows
        self.num_sound_rows += result.num_sound_rows
        self.num_tokens += result.num_tokens
        if not result.is_complete:
            self._incomplete.add(split)
        if result.read_error is not None:
            self.unreadable.setdefault(shard, result.read_error)
        for code, tally in result.tallies.items():
            if code not in self.skipped:
                self._tallies.setdefault((code, split), Tally(max_examples=self._max_examples)).merge(tally)
        self.skipped = result.skipped | self.skipped
        self._totals[split].merge(result.totals)
        for sequences in result.sequences:
            self._overlap.add(split, shard, sequences)
        return result.num_rows

    @property
    def num_shards_read(self) -> int:
        """Shards read to the end."""
        shards = [shard for group in self._plan.shards.values() for shard in group]
        return sum(why_not_streamable(shard) is None and shard.path not in self.unreadable for shard in shards)

    def shards(self) -> dict[str, tuple[ShardFacts, ...]]:
        """Return split -> its shards, with the hashes that were computed."""
        return {
            split: tuple(replace(shard, sha256=self._hashes.get(shard.path, shard.sha256)) for shard in group)
            for split, group in self._plan.shards.items()
        }

    def truths(self) -> dict[str, SplitTruth]:
        """Return split -> what it holds."""
        return {
            split: totals.truth(split, is_complete=split not in self._incomplete)
            for split, totals in self._totals.items()
        }

    def shared(self) -> tuple[SharedSequences, ...]:
        """Return the sequences that lie in two splits."""
        return self._overlap.shared()

    def findings(self, rules: Iterable[Rule]) -> list[Finding]:
        """Return one finding per rule that was broken; examples in the order of the splits."""
        findings = []
        for rule in rules:
            whole = Tally(max_examples=self._max_examples)
            for split in self._plan.shards:
                whole.merge(self._tallies.get((rule.code, split), Tally(max_examples=0)))
            if whole.num_violations:
                findings.append(finding_of(rule, whole))
        return findings
