"""Reads an artifact once: its rows in parts, which may run in several processes, and what they give together.

Memory holds one batch per process, the first offenders of each rule, and 8 bytes for each sequence of all splits but
the largest.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import batched
from typing import Protocol

from bridgepack.records import Finding, InspectableArtifact, ShardFacts
from bridgepack.rules.engine.context import CheckContext
from bridgepack.rules.engine.facts import ArtifactFacts, why_not_streamable
from bridgepack.rules.engine.overlap import OverlapFinder
from bridgepack.rules.engine.part import PartJudge, PartScan, ShardPart, parts_of
from bridgepack.rules.engine.report import Tally, finding_of
from bridgepack.rules.engine.rule import RowRule, Rule, StructureRule
from bridgepack.rules.engine.truth import SplitTruth

RunTasks = Callable[[Callable[[ShardPart], PartScan], Iterable[ShardPart]], Iterable[PartScan]]
#: Files are hashed so many at a time, right before their rows are read: hashes run beside one another, and the second
#: reading finds the file in memory.
_FILES_AHEAD = 8


class ScanProgress(Protocol):
    """Told how far the scan is, in rows judged and bytes of the files done."""

    def start(self, stage: str, total: int | None, unit: str) -> None:
        """Begin."""

    def advance(self, num_items: int, work: int | None = None) -> None:
        """Note progress."""

    def finish(self) -> None:
        """End."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """How a scan reads and runs; none of it changes the outcome."""

    #: gives the function's result for each part, in order; None runs them one after the other here
    run_tasks: RunTasks | None = None
    progress: ScanProgress | None = None  #: told how far it is
    #: stored tokens per batch: small enough for the caches to help, large enough for numpy's overhead to vanish
    max_tokens: int = 1 << 20
    #: stored tokens of a part: a tenth of a second's work, so that progress moves and cores stay busy to the end
    part_tokens: int = 1 << 23


class ArtifactScan:
    """What one pass over an artifact's rows gives; rules on the whole artifact have not been run yet.

    Attributes:
        num_rows: rows read.
        num_tokens: stored tokens read.
        skipped: code -> why; structure and row rules that did not judge.
        truths: split -> what it holds.
        unreadable: shard -> why its rows could not be read to the end.
    """

    def __init__(self, shards: Mapping[str, tuple[ShardFacts, ...]], *, max_examples: int) -> None:
        """Take split -> its shards, and the places kept per rule."""
        self.num_rows = self.num_tokens = 0
        self.skipped: dict[str, str] = {}
        self.unreadable: dict[str, str] = {}
        self.truths = {
            split: SplitTruth(split=split, is_complete=not any(map(why_not_streamable, group)))
            for split, group in shards.items()
        }
        self._shards = shards
        self._max_examples = max_examples
        self._hashes: dict[str, str] = {}
        self._tallies: dict[tuple[str, str], Tally] = {}
        self._by_size = sorted(shards, key=lambda split: sum(shard.num_rows or 0 for shard in shards[split]))
        self._overlap = OverlapFinder(largest_split=self._by_size[-1] if shards else "")

    @property
    def num_sound_rows(self) -> int:
        """Rows whose structure holds."""
        return sum(truth.num_rows for truth in self.truths.values())

    @property
    def num_shards_read(self) -> int:
        """Shards read to the end."""
        return sum(
            why_not_streamable(shard) is None and shard.path not in self.unreadable
            for group in self._shards.values()
            for shard in group
        )

    def parts(self, execution: Execution) -> Iterator[ShardPart]:
        """Yield what is to be read, the split with the fewest rows first."""
        for split in self._by_size:
            for shards in batched(self._shards[split], _FILES_AHEAD):
                for shard in shards:
                    if shard.exists and shard.sha256 is None:
                        num_bytes = shard.num_bytes or 0
                        yield ShardPart(split=split, shard=shard.path, num_bytes=num_bytes, is_file=True)
                for shard in shards:
                    if why_not_streamable(shard) is None:
                        yield from parts_of(split, shard, part_tokens=execution.part_tokens)

    def add(self, scan: PartScan) -> None:
        """Take in what a part gave, in the order of the parts."""
        split, shard = scan.part.split, scan.part.shard
        if scan.part.is_file:
            self._hashes[shard] = scan.sha256
            return
        self.num_rows += scan.num_rows
        self.num_tokens += scan.num_tokens
        if scan.read_error is not None:
            self.unreadable.setdefault(shard, scan.read_error)
        for code, tally in scan.tallies.items():
            self._tallies.setdefault((code, split), Tally(max_examples=self._max_examples)).merge(tally)
        self.skipped = scan.skipped | self.skipped
        self.truths[split].merge(scan.truth)
        for sequences in scan.sequences:
            self._overlap.add(split, shard, sequences)

    def facts(self, artifact: InspectableArtifact, context: CheckContext) -> ArtifactFacts:
        """Return what rules on the whole artifact take."""
        return ArtifactFacts(
            context=context,
            manifest=artifact.manifest,
            shards={
                split: tuple(replace(shard, sha256=self._hashes.get(shard.path, shard.sha256)) for shard in group)
                for split, group in self._shards.items()
            },
            unlisted_files=artifact.unlisted_files(),
            changed_files=artifact.changed_files(),
            unreadable_shards=self.unreadable,
            metadata=artifact.metadata_facts(),
            truths=self.truths,
            shared=self._overlap.shared(),
        )

    def findings(self, rules: Iterable[Rule]) -> list[Finding]:
        """Return one finding per structure or row rule that was broken; examples in the order of the splits."""
        findings = []
        for rule in rules:
            whole = Tally(max_examples=self._max_examples)
            for split in self._shards:
                whole.merge(self._tallies.get((rule.code, split), Tally(max_examples=0)))
            if whole.num_violations:
                findings.append(finding_of(rule, whole))
        return findings


def scan_artifact(
    artifact: InspectableArtifact,
    *,
    rules: Sequence[Rule],
    context: CheckContext,
    max_examples: int,
    execution: Execution,
) -> ArtifactScan:
    """Return what one pass over the rows gives, judged by the structure and row rules among `rules`.

    Raises:
        RuleCrashError: a rule raised.
    """
    shards = {split: artifact.shard_facts(split) for split in artifact.split_names}
    scan = ArtifactScan(shards, max_examples=max_examples)
    judge = PartJudge(
        reader=artifact.parts,
        context=context,
        structure=tuple(rule for rule in rules if isinstance(rule, StructureRule)),
        rows=tuple(rule for rule in rules if isinstance(rule, RowRule)),
        max_examples=max_examples,
        max_tokens=execution.max_tokens,
        hashes_sequences=sum(any(shard.num_rows for shard in group) for group in shards.values()) > 1,
    )
    progress = execution.progress
    if progress is not None:
        progress.start("Checking", sum(part.num_bytes for part in scan.parts(execution)), "rows")
    for found in (execution.run_tasks or map)(judge, scan.parts(execution)):
        scan.add(found)
        if progress is not None:
            progress.advance(found.num_rows, work=found.part.num_bytes)
    if progress is not None:
        progress.finish()
    return scan
