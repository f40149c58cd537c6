"""Runs rules over an artifact: streams its rows once, then judges the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bridgepack.errors import ArtifactError, BridgepackError
from bridgepack.records import Finding, InspectableArtifact, ShardFacts
from bridgepack.rules.batches import BoolArray, Offenders, RawRows, SoundRows, sound_rows
from bridgepack.rules.context import CannotJudgeError, CheckContext, context_from_manifest
from bridgepack.rules.overlap import OverlapFinder
from bridgepack.rules.registry import ARTIFACT_RULES
from bridgepack.rules.report import CheckReport, SkippedRule
from bridgepack.rules.rule import ArtifactFacts, ArtifactRule, RowRule, Rule, StructureRule
from bridgepack.rules.shards import why_not_streamable
from bridgepack.rules.tally import Tally, finding_of, findings_of, merged_tally
from bridgepack.rules.truth import SplitTotals, SplitTruth

#: Tokens of a batch: small enough for the caches to help, large enough for numpy's overhead to vanish.
BATCH_TOKENS = 1 << 20


class RuleCrashError(BridgepackError):
    """A rule raised: nothing is known about what it judges, so the check has no outcome."""


def check_artifact(
    artifact: InspectableArtifact,
    *,
    context: CheckContext | None = None,
    rules: Sequence[Rule] = ARTIFACT_RULES,
    max_examples: int = 5,
    max_tokens: int = BATCH_TOKENS,
) -> CheckReport:
    """Return what the rules say about an artifact.

    Args:
        artifact: the subject.
        context: what rows are judged against; by default what the manifest says. Without a manifest and without
            this, rules that need it are skipped.
        rules: rules to run.
        max_examples: places named per finding.
        max_tokens: stored tokens per batch; bounds memory.

    Raises:
        RuleCrashError: a rule raised.
    """
    scan = scan_artifact(artifact, context=context, rules=rules, max_examples=max_examples, max_tokens=max_tokens)
    return report_of_scan(scan, rules=rules, max_examples=max_examples)


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
    context: CheckContext | None = None,
    rules: Sequence[Rule] = ARTIFACT_RULES,
    max_examples: int = 5,
    max_tokens: int = BATCH_TOKENS,
) -> ArtifactScan:
    """Return the facts about an artifact and what structure and row rules find; arguments as in `check_artifact`.

    Raises:
        RuleCrashError: a rule raised.
    """
    if context is None:
        context = CheckContext() if artifact.manifest is None else context_from_manifest(artifact.manifest)
    shards = {split: artifact.shard_facts(split) for split in artifact.split_names}
    stream = _Stream(context=context, rules=rules, max_examples=max_examples)
    overlap = OverlapFinder(largest_split=_by_size(shards)[-1] if shards else "")
    for split in _by_size(shards):
        overlap.begin(split)
        _stream_split(artifact, split, shards[split], stream, overlap, max_tokens)
    facts = ArtifactFacts(
        context=context,
        manifest=artifact.manifest,
        shards=shards,
        unlisted_shards=artifact.unlisted_shards(),
        unreadable_shards=stream.unreadable,
        metadata=artifact.metadata_facts(),
        truths={split: stream.truth(split) for split in shards},
        shared=overlap.shared(),
    )
    return ArtifactScan(
        facts=facts,
        findings=tuple(stream.findings(list(shards))),
        skipped=stream.skipped,
        num_shards_read=stream.num_shards_read,
        num_rows=stream.num_rows,
        num_sound_rows=stream.num_sound_rows,
        num_tokens=stream.num_tokens,
    )


def report_of_scan(scan: ArtifactScan, *, rules: Sequence[Rule] = ARTIFACT_RULES, max_examples: int = 5) -> CheckReport:
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
        findings=tuple(sorted(found, key=lambda finding: (finding.severity, finding.code))),
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


@dataclass(kw_only=True)
class _Stream:
    """What is gathered while rows are streamed."""

    context: CheckContext
    rules: Sequence[Rule]
    max_examples: int
    num_rows: int = 0
    num_sound_rows: int = 0
    num_tokens: int = 0
    num_shards_read: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)
    totals: dict[str, SplitTotals] = field(default_factory=dict)
    incomplete_splits: set[str] = field(default_factory=set)

    def judge_structure(self, split: str, raw: RawRows) -> BoolArray:
        """Run the structure rules; return which rows none of them reports, shape [num_rows]."""
        is_sound = np.ones(raw.num_rows, dtype=np.bool_)
        for rule in self.rules:
            if isinstance(rule, StructureRule):
                offenders = self._run(rule, rule.check, raw, split, raw.batch.shard)
                if offenders is not None:
                    is_sound[offenders.rows] = False
        return is_sound

    def judge_rows(self, split: str, shard: str, rows: SoundRows) -> None:
        """Run the row rules."""
        for rule in self.rules:
            if isinstance(rule, RowRule):
                self._run(rule, rule.check, rows, split, shard)

    def truth(self, split: str) -> SplitTruth:
        """Return what the split holds."""
        totals = self.totals.get(split, SplitTotals())
        return totals.truth(split, is_complete=split not in self.incomplete_splits)

    def findings(self, splits: Sequence[str]) -> list[Finding]:
        """Return one finding per rule that was broken; examples in the order of `splits`."""
        findings = []
        for rule in self.rules:
            tallies = [self.tallies[rule.code, split] for split in splits if (rule.code, split) in self.tallies]
            if tallies:
                findings.append(finding_of(rule, merged_tally(tallies, max_examples=self.max_examples)))
        return findings

    def _run[R: (RawRows, SoundRows)](
        self, rule: Rule, check: Callable[[R], Offenders | None], rows: R, split: str, shard: str
    ) -> Offenders | None:
        if rule.code in self.skipped:
            return None
        try:
            offenders = check(rows)
            if offenders is not None and len(offenders.rows):
                tally = self.tallies.setdefault((rule.code, split), Tally(max_examples=self.max_examples))
                tally.add_offenders(offenders, shard, rows)
        except CannotJudgeError as reason:
            self.skipped[rule.code] = str(reason)
            return None
        except Exception as error:  # whatever a rule raises is that rule's crash
            raise _crash(rule, shard, error) from error
        return offenders


def _stream_split(
    artifact: InspectableArtifact,
    split: str,
    shards: Iterable[ShardFacts],
    stream: _Stream,
    overlap: OverlapFinder,
    max_tokens: int,
) -> None:
    totals = stream.totals.setdefault(split, SplitTotals())
    for shard in shards:
        if why_not_streamable(shard) is not None:
            stream.incomplete_splits.add(split)
            continue
        try:
            for batch in artifact.iter_shard_batches(shard.path, max_tokens=max_tokens):
                raw = RawRows(batch=batch, context=stream.context)
                if raw.num_rows:
                    _stream_batch(raw, split, stream, totals, overlap)
        except ArtifactError as error:
            stream.incomplete_splits.add(split)
            stream.unreadable[shard.path] = str(error)
        else:
            stream.num_shards_read += 1


def _stream_batch(raw: RawRows, split: str, stream: _Stream, totals: SplitTotals, overlap: OverlapFinder) -> None:
    is_sound = stream.judge_structure(split, raw)
    num_sound = int(np.count_nonzero(is_sound))
    stream.num_rows += raw.num_rows
    stream.num_tokens += int(raw.row_lengths.sum())
    stream.num_sound_rows += num_sound
    if num_sound < raw.num_rows:
        stream.incomplete_splits.add(split)
    if num_sound:
        rows = sound_rows(raw, is_sound)
        stream.judge_rows(split, raw.batch.shard, rows)
        totals.add(rows)
        overlap.add(split, raw.batch.shard, rows)


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
            raise _crash(rule, "the artifact", error) from error
    return findings, skipped


def _by_size(shards: Mapping[str, Sequence[ShardFacts]]) -> list[str]:
    return sorted(shards, key=lambda split: sum(shard.num_rows or 0 for shard in shards[split]))


def _crash(rule: Rule, subject: str, error: Exception) -> RuleCrashError:
    return RuleCrashError(
        f"rule {rule.code} ({rule.name}) crashed on {subject}: {type(error).__name__}: {error}. "
        "This is a bug in bridgepack; report it with the artifact's manifest."
    )
