"""Reads an artifact's rows once, in parts that may run in several processes, and combines the results.

Memory holds one batch per process, the first offenders of each rule, and 8 bytes per sequence of all splits except
the largest.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import batched

from bridgepack.records import Finding, InspectableArtifact, Progress, ShardFacts
from bridgepack.rules.judging.context import CheckContext
from bridgepack.rules.judging.facts import ArtifactFacts, ReadCounts, why_not_streamable
from bridgepack.rules.judging.judgement import Tally, finding_of
from bridgepack.rules.judging.overlap import OverlapFinder
from bridgepack.rules.judging.part import PartJudge, PartScan, ShardPart, parts_of
from bridgepack.rules.judging.rule import RowRule, Rule, StructureRule
from bridgepack.rules.judging.truth import SplitTruth

RunTasks = Callable[[Callable[[ShardPart], PartScan], Iterable[ShardPart]], Iterable[PartScan]]
#: Number of files hashed at a time, right before their rows are read: hashing runs in parallel, and the second read
#: finds the file in the page cache.
_FILES_AHEAD = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """How a scan reads and runs; it does not affect the result."""

    #: returns the function's result for each part, in order (default: sequentially in this process)
    run_tasks: RunTasks | None = None
    progress: Progress | None = None  #: receives the progress, in judged rows and read bytes
    #: stored tokens per batch: small enough for CPU caches, large enough to hide numpy's overhead
    max_tokens: int = 1 << 20
    #: stored tokens per part: about 0.1 s of work, so that progress moves and cores stay busy to the end
    part_tokens: int = 1 << 23


class ArtifactScan:
    """The result of one pass over an artifact's rows, before the rules on the whole artifact."""

    def __init__(self, shards: Mapping[str, tuple[ShardFacts, ...]], *, max_examples: int) -> None:
        """Take split -> its shards, and the maximum places kept per rule."""
        self.num_rows = self.num_tokens = 0
        self.reasons: dict[str, str] = {}  #: code of a structure or row rule that was skipped -> why
        self.unreadable: dict[str, str] = {}  #: shard -> why its rows could not all be read
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
        """Number of rows with valid structure."""
        return sum(truth.num_rows for truth in self.truths.values())

    @property
    def num_shards_read(self) -> int:
        """Number of shards read to the end."""
        return sum(
            why_not_streamable(shard) is None and shard.path not in self.unreadable
            for group in self._shards.values()
            for shard in group
        )

    @property
    def counts(self) -> ReadCounts:
        """How much there is, and how much of it was read."""
        return ReadCounts(
            num_shards=sum(map(len, self._shards.values())),
            num_shards_read=self.num_shards_read,
            num_rows=self.num_rows,
            num_sound_rows=self.num_sound_rows,
            num_tokens=self.num_tokens,
        )

    def parts(self, execution: Execution) -> Iterator[ShardPart]:
        """Yield the parts to read, the split with the fewest rows first."""
        for split in self._by_size:
            with_first_packs = zip(self._shards[split], _first_packs(self._shards[split]), strict=True)
            for shards in batched(with_first_packs, _FILES_AHEAD):
                for shard, _ in shards:
                    if shard.exists and shard.sha256 is None:
                        num_bytes = shard.num_bytes or 0
                        yield ShardPart(split=split, shard=shard.path, num_bytes=num_bytes, is_file=True)
                for shard, first_pack in shards:
                    if why_not_streamable(shard) is None:
                        yield from parts_of(split, shard, first_pack=first_pack, part_tokens=execution.part_tokens)

    def add(self, scan: PartScan) -> None:
        """Add the result of a part, in the order of the parts."""
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
        self.reasons = scan.reasons | self.reasons
        self.truths[split].merge(scan.truth)
        for sequences in scan.sequences:
            self._overlap.add(split, sequences, scan.part.place)

    def facts(self, artifact: InspectableArtifact, context: CheckContext) -> ArtifactFacts:
        """Return the facts for rules on the whole artifact."""
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
            shared_sequences=self._overlap.shared_sequences(),
            counts=self.counts,
        )

    def findings(self, rules: Iterable[Rule]) -> list[Finding]:
        """Return one finding per broken structure or row rule; examples in the order of the splits."""
        findings = []
        for rule in rules:
            total = Tally(max_examples=self._max_examples)
            for split in self._shards:
                total.merge(self._tallies.get((rule.code, split), Tally(max_examples=0)))
            if total.num_violations:
                findings.append(finding_of(rule, total))
        return findings


def _first_packs(shards: Sequence[ShardFacts]) -> Iterator[int | None]:
    """Yield the 0-based index in the split of each shard's first pack; None behind a shard that cannot be read.

    Shards of 3, 2 and 4 packs -> 0, 3, 5.
    """
    first: int | None = 0
    for shard in shards:
        yield first
        first = None if first is None or shard.num_rows is None else first + shard.num_rows


def scan_artifact(
    artifact: InspectableArtifact,
    *,
    rules: Sequence[Rule],
    context: CheckContext,
    max_examples: int,
    execution: Execution,
) -> ArtifactScan:
    """Return the result of one pass over the rows with the structure and row rules among `rules`.

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
        progress.start("Checking", sum(part.num_bytes for part in scan.parts(execution)), "packs")
    for part_scan in (execution.run_tasks or map)(judge, scan.parts(execution)):
        scan.add(part_scan)
        if progress is not None:
            progress.advance(part_scan.num_rows, work=part_scan.part.num_bytes)
    if progress is not None:
        progress.finish()
    return scan
