"""Runs rules over an artifact: its rows in parts, which may run in several processes, then the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bridgepack.records import Finding, InspectableArtifact, RowBatch
from bridgepack.rules.engine.context import CannotJudgeError, CheckContext, context_from_manifest
from bridgepack.rules.engine.merging import MergedScans
from bridgepack.rules.engine.parts import PART_TOKENS
from bridgepack.rules.engine.report import CheckReport, SkippedRule
from bridgepack.rules.engine.rule import ArtifactFacts, ArtifactRule, RowRule, Rule, Severity, StructureRule
from bridgepack.rules.engine.scanning import BatchRules, PartReader, crash_of
from bridgepack.rules.engine.tally import findings_of
from bridgepack.rules.engine.tasks import ScanPlan, Task, TaskResult, run_task

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

    Memory holds one batch per process, the first offenders of each rule, and at most `overlap.MAX_HASHES` hashes of
    each split but the largest.

    Raises:
        RuleCrashError: a rule raised.
    """
    execution = execution or Execution()
    if context is None:
        context = CheckContext() if artifact.manifest is None else context_from_manifest(artifact.manifest)
    plan = ScanPlan(
        shards={split: artifact.shard_facts(split) for split in artifact.split_names},
        reader=execution.reader or _WholeShards(artifact),
        part_tokens=None if execution.reader is None else execution.part_tokens,
        hashes_files=execution.reader is not None,
        context=context,
        rules=BatchRules([*rules, *(rule for rule in structure if rule not in rules)]),
        max_examples=max_examples,
        max_tokens=execution.max_tokens,
    )
    merged = MergedScans(plan, max_examples=max_examples)
    _run_plan(plan, merged, execution)
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


def report_of_scan(scan: ArtifactScan, *, rules: Sequence[Rule], max_examples: int = 5) -> CheckReport:
    """Return the report of a scan, after the rules on the whole artifact have judged its facts.

    Raises:
        RuleCrashError: a rule raised.
    """
    findings, skipped = _judge_whole(scan.facts, rules, max_examples)
    reasons = {**scan.skipped, **skipped}
    for rule in rules:
        if isinstance(rule, StructureRule) and not scan.num_rows:
            reasons.setdefault(rule.code, "no row could be read")
        if isinstance(rule, RowRule) and not scan.num_sound_rows:
            reasons.setdefault(rule.code, "no sound row could be read")
    names = {rule.code: rule.name for rule in rules}
    found = [*scan.findings, *findings]
    return CheckReport(
        findings=tuple(sorted(found, key=lambda finding: (Severity(finding.severity).rank, finding.code))),
        rules_run=tuple(sorted(names.keys() - reasons.keys())),
        rules_skipped=tuple(
            SkippedRule(code=code, name=names[code], reason=reason) for code, reason in sorted(reasons.items())
        ),
        num_shards=sum(len(group) for group in scan.facts.shards.values()),
        num_shards_read=scan.num_shards_read,
        num_rows=scan.num_rows,
        num_sound_rows=scan.num_sound_rows,
        num_tokens=scan.num_tokens,
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


def _run_plan(plan: ScanPlan, merged: MergedScans, execution: Execution) -> None:
    tasks = plan.tasks()
    results = execution.run_tasks(run_task, tasks) if execution.run_tasks else map(run_task, tasks)
    if execution.progress is None:
        for result in results:
            merged.add(result)
        return
    execution.progress.start("Checking", plan.num_bytes, "rows")
    for result in results:
        execution.progress.advance(merged.add(result), work=result.num_bytes)
    execution.progress.finish()


def _judge_whole(
    facts: ArtifactFacts, rules: Sequence[Rule], max_examples: int
) -> tuple[list[Finding], dict[str, str]]:
    findings: list[Finding] = []
    skipped: dict[str, str] = {}
    for rule in rules:
        if not isinstance(rule, ArtifactRule):
            continue
        try:
            findings += findings_of(rule, rule.check(facts), max_examples=max_examples)
        except CannotJudgeError as reason:
            skipped[rule.code] = str(reason)
        except Exception as error:  # whatever a rule raises is that rule's crash
            raise crash_of(rule, "the artifact", error) from error
    return findings, skipped
