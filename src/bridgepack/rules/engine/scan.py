"""Reads an artifact once: its rows in parts, which may run in several processes, and what they give together.

Memory holds one batch per process, the first offenders of each rule, and at most `overlap.MAX_HASHES` hashes of each
split but the largest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import batched
from typing import Protocol

from bridgepack.records import Finding, InspectableArtifact, RowBatch, ShardFacts
from bridgepack.rules.engine.context import CheckContext, context_from_manifest
from bridgepack.rules.engine.facts import ArtifactFacts, why_not_streamable
from bridgepack.rules.engine.overlap import OverlapFinder, SharedSequences
from bridgepack.rules.engine.part import (
    PART_TOKENS,
    BatchRules,
    HashTask,
    PartReader,
    PartScan,
    PartTask,
    Task,
    TaskResult,
    parts_of,
    run_task,
)
from bridgepack.rules.engine.report import Tally, finding_of
from bridgepack.rules.engine.rule import Rule, StructureRule
from bridgepack.rules.engine.truth import SplitTotals, SplitTruth

#: Tokens of a batch: small enough for the caches to help, large enough for numpy's overhead to vanish.
BATCH_TOKENS = 1 << 20

RunTasks = Callable[[Callable[[Task], TaskResult], Iterable[Task]], Iterable[TaskResult]]


class ScanProgress(Protocol):
    """Told how far the scan is, in rows made and bytes of the files done."""

    def start(self, stage: str, total: int | None, unit: str) -> None:
        """Begin."""
        ...

    def advance(self, num_items: int, work: int | None = None) -> None:
        """Note progress."""
        ...

    def finish(self) -> None:
        """End."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Execution:
    """How a scan reads and runs; none of it changes the outcome.

    Attributes:
        reader: reads parts and hashes files; None reads whole shards from the artifact and hashes nothing.
        run_tasks: gives the function's result for each task, in order, as `data.execution.Runner.run`; None runs
            them one after the other here.
        progress: told how far it is.
        max_tokens: stored tokens per batch; bounds memory.
        part_tokens: stored tokens of a task, at which a shard is cut when `reader` is given.
    """

    reader: PartReader | None = None
    run_tasks: RunTasks | None = None
    progress: ScanProgress | None = None
    max_tokens: int = BATCH_TOKENS
    part_tokens: int = PART_TOKENS


@dataclass(frozen=True, kw_only=True, slots=True)
class ArtifactScan:
    """What one pass over an artifact's rows gives; rules on the whole artifact have not been run yet.

    Attributes:
        facts: what rules on the whole artifact, alone or beside a recipe, take.
        findings: of structure and row rules, in the order of the rules.
        skipped: code -> why; structure and row rules that did not judge.
        num_shards_read: shards read to the end.
        num_rows: rows read.
        num_sound_rows: rows whose structure holds.
        num_tokens: stored tokens read.
    """

    facts: ArtifactFacts
    findings: tuple[Finding, ...]
    skipped: Mapping[str, str]
    num_shards_read: int
    num_rows: int
    num_sound_rows: int
    num_tokens: int


def scan_artifact(
    artifact: InspectableArtifact,
    *,
    rules: Sequence[Rule],
    structure: Sequence[StructureRule],
    context: CheckContext | None = None,
    max_examples: int = 5,
    execution: Execution | None = None,
) -> ArtifactScan:
    """Return the facts about an artifact and what structure and row rules find.

    Args:
        artifact: the subject.
        rules: to run.
        structure: every structure rule: without them row rules would meet rows that they cannot take.
        context: what rows are judged against; by default what the manifest says. Without a manifest and without
            this, rules that need it are skipped.
        max_examples: places named per finding.
        execution: how to read and run; by default here, shard by shard.

    Raises:
        RuleCrashError: a rule raised.
    """
    execution = execution or Execution()
    if context is None:
        context = CheckContext() if artifact.manifest is None else context_from_manifest(artifact.manifest)
    every_rule = BatchRules([*rules, *(rule for rule in structure if rule not in rules)])
    plan = _plan(artifact, every_rule, context, max_examples, execution)
    merged = _run_plan(plan, execution)
    facts = ArtifactFacts(
        context=context,
        manifest=artifact.manifest,
        shards=merged.shards(),
        unlisted_shards=artifact.unlisted_shards(),
        unreadable_shards=merged.unreadable,
        metadata=artifact.metadata_facts(),
        truths=merged.truths(),
        shared=merged.shared(),
    )
    return ArtifactScan(
        facts=facts,
        findings=tuple(merged.findings(rules)),
        skipped={rule.code: merged.skipped[rule.code] for rule in rules if rule.code in merged.skipped},
        num_shards_read=merged.num_shards_read,
        num_rows=merged.num_rows,
        num_sound_rows=merged.num_sound_rows,
        num_tokens=merged.num_tokens,
    )


def _plan(
    artifact: InspectableArtifact, rules: BatchRules, context: CheckContext, max_examples: int, execution: Execution
) -> ScanPlan:
    return ScanPlan(
        shards={split: artifact.shard_facts(split) for split in artifact.split_names},
        reader=execution.reader or _WholeShards(artifact),
        part_tokens=None if execution.reader is None else execution.part_tokens,
        hashes_files=execution.reader is not None,
        context=context,
        rules=rules,
        max_examples=max_examples,
        max_tokens=execution.max_tokens,
    )


class _WholeShards:
    """Reads shards as the artifact does, without cutting or hashing them."""

    def __init__(self, artifact: InspectableArtifact) -> None:
        self._artifact = artifact

    def iter_batches(
        self, shard: str, *, row_groups: range | None, first_row: int, max_tokens: int
    ) -> Iterator[RowBatch]:
        """Yield the rows of a whole shard."""
        assert row_groups is None
        assert first_row == 0
        yield from self._artifact.iter_shard_batches(shard, max_tokens=max_tokens)

    def sha256(self, shard: str) -> str:
        """Never called: the artifact's facts have the hashes, or nobody wants them."""
        raise NotImplementedError(shard)


def _run_plan(plan: ScanPlan, execution: Execution) -> MergedScans:
    merged = MergedScans(plan, max_examples=plan.max_examples)
    tasks = plan.tasks()
    results = execution.run_tasks(run_task, tasks) if execution.run_tasks else map(run_task, tasks)
    if execution.progress is None:
        for result in results:
            merged.add(result)
        return merged
    execution.progress.start("Checking", plan.num_bytes, "rows")
    for result in results:
        execution.progress.advance(merged.add(result), work=result.num_bytes)
    execution.progress.finish()
    return merged


#: Files are hashed so many at a time, right before their rows are read: hashes run beside one another, and the second
#: reading finds the file in memory.
_FILES_AHEAD = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanPlan:
    """What is to be read, and how it is judged.

    Attributes:
        shards: split -> its shards, training first.
        reader: reads parts and hashes files.
        part_tokens: stored tokens of a part; None leaves shards whole.
        hashes_files: hash the shards' files.
        context: what rows are judged against.
        rules: structure and row rules.
        max_examples: places kept per rule.
        max_tokens: stored tokens per batch.
    """

    shards: Mapping[str, tuple[ShardFacts, ...]]
    reader: PartReader
    part_tokens: int | None
    hashes_files: bool
    context: CheckContext
    rules: BatchRules
    max_examples: int
    max_tokens: int

    @property
    def splits_by_size(self) -> list[str]:
        """The splits in the order in which they are read: fewest rows first."""
        return sorted(self.shards, key=lambda split: sum(shard.num_rows or 0 for shard in self.shards[split]))

    @property
    def num_bytes(self) -> int:
        """Bytes of all tasks: those to hash and those to read."""
        shards = [shard for group in self.shards.values() for shard in group]
        hashed = sum(shard.num_bytes or 0 for shard in shards if self._is_hashed(shard))
        return hashed + sum(shard.num_bytes or 0 for shard in shards if why_not_streamable(shard) is None)

    def tasks(self) -> Iterator[Task]:
        """Yield the tasks; parts in order, splits by size."""
        has_overlap = sum(any(shard.num_rows for shard in group) for group in self.shards.values()) > 1
        for split in self.splits_by_size:
            for shards in batched(self.shards[split], _FILES_AHEAD):
                yield from self._hash_tasks(shards)
                yield from self._part_tasks(split, shards, has_overlap)

    def _hash_tasks(self, shards: Sequence[ShardFacts]) -> Iterator[HashTask]:
        for shard in shards:
            if self._is_hashed(shard):
                yield HashTask(shard=shard.path, reader=self.reader, num_bytes=shard.num_bytes or 0)

    def _part_tasks(self, split: str, shards: Sequence[ShardFacts], has_overlap: bool) -> Iterator[PartTask]:
        for shard in shards:
            if why_not_streamable(shard) is not None:
                continue
            for part in parts_of(split, shard, part_tokens=self.part_tokens):
                yield PartTask(
                    part=part,
                    reader=self.reader,
                    context=self.context,
                    rules=self.rules,
                    max_examples=self.max_examples,
                    max_tokens=self.max_tokens,
                    has_hashes=has_overlap,
                )

    def _is_hashed(self, shard: ShardFacts) -> bool:
        return self.hashes_files and shard.exists and shard.sha256 is None


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
