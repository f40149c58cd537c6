"""Parts of shards, and the work on one: read its rows, run the structure and row rules, sum up.

A task holds all it needs and can be pickled, so it runs in any process; `scan` puts the outcomes together. How shards
are cut depends on them alone, never on the number of workers, so the outcome cannot depend on it either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import accumulate, pairwise
from typing import Protocol

import numpy as np

from bridgepack.errors import ArtifactError
from bridgepack.records import RowBatch, ShardFacts
from bridgepack.rules.engine.context import CannotJudgeError, CheckContext
from bridgepack.rules.engine.overlap import SequenceHashes, hash_sequences
from bridgepack.rules.engine.report import Tally, crash_of
from bridgepack.rules.engine.rows import BoolArray, Offenders, RawRows, SoundRows, sound_rows
from bridgepack.rules.engine.rule import RowRule, Rule, StructureRule
from bridgepack.rules.engine.truth import SplitTotals

#: Stored tokens of a part: a tenth of a second's work, so that progress moves and cores stay busy to the end.
PART_TOKENS = 1 << 23


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardPart:
    """Consecutive rows of one shard.

    Attributes:
        split: of the shard.
        shard: its path, relative to the artifact.
        row_groups: row groups of the part; None for a whole shard, whatever its row groups.
        first_row: 0-based index of its first row in the shard.
        num_bytes: its share of the file's size.
    """

    split: str
    shard: str
    row_groups: range | None
    first_row: int
    num_bytes: int


def parts_of(split: str, shard: ShardFacts, *, part_tokens: int | None) -> Iterator[ShardPart]:
    """Yield the parts of a shard in order, cut at the first row group after each `part_tokens` stored tokens.

    Args:
        split: of the shard.
        shard: its facts.
        part_tokens: None leaves it whole.
    """
    num_bytes, num_groups = shard.num_bytes or 0, len(shard.row_group_tokens)
    if part_tokens is None or sum(shard.row_group_tokens) <= part_tokens:
        yield ShardPart(split=split, shard=shard.path, row_groups=None, first_row=0, num_bytes=num_bytes)
        return
    tokens, rows = _before(shard.row_group_tokens), _before(shard.row_group_rows)
    begins = [group for group in range(num_groups) if _begins_part(tokens, group, part_tokens)]
    for begin, end in pairwise([*begins, num_groups]):
        yield ShardPart(
            split=split,
            shard=shard.path,
            row_groups=range(begin, end),
            first_row=rows[begin],
            num_bytes=num_bytes * tokens[end] // tokens[-1] - num_bytes * tokens[begin] // tokens[-1],
        )


def _begins_part(tokens: Sequence[int], group: int, part_tokens: int) -> bool:
    return group == 0 or tokens[group] // part_tokens != tokens[group - 1] // part_tokens


def _before(counts: Sequence[int]) -> Sequence[int]:
    """Return how many come before each place: [3, 4] -> [0, 3, 7]."""
    return list(accumulate(counts, initial=0))


class PartReader(Protocol):
    """Reads shards; where tasks run in other processes it can be pickled."""

    def iter_batches(
        self, shard: str, *, row_groups: range | None, first_row: int, max_tokens: int
    ) -> Iterator[RowBatch]:
        """Yield the rows of some row groups in order, in batches of about `max_tokens` stored tokens or more.

        Args:
            shard: its path, relative to the artifact.
            row_groups: which, one after the other; None for the whole shard.
            first_row: 0-based index of their first row in the shard.
            max_tokens: bound on the stored tokens of a batch; a single row group may exceed it.

        Raises:
            ArtifactError: they cannot be read to its end, or a row or an element of it is null.
        """
        ...

    def sha256(self, shard: str) -> str:
        """Return the sha256 of a shard's file, hexadecimal."""
        ...


class BatchRules:
    """Structure and row rules; pickled by name, since a rule stands where its function was."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.structure: tuple[StructureRule, ...] = tuple(rule for rule in rules if isinstance(rule, StructureRule))
        self.rows: tuple[RowRule, ...] = tuple(rule for rule in rules if isinstance(rule, RowRule))

    def __reduce__(self) -> tuple[Callable[..., BatchRules], tuple[tuple[tuple[str, str], ...]]]:
        """Pickle the places of the rules."""
        checks = [*(rule.check for rule in self.structure), *(rule.check for rule in self.rows)]
        return _rules_at, (tuple((check.__module__, check.__name__) for check in checks),)


def _rules_at(places: Sequence[tuple[str, str]]) -> BatchRules:
    return BatchRules([getattr(import_module(module), name) for module, name in places])


@dataclass(frozen=True, kw_only=True, slots=True)
class PartTask:
    """A part to judge.

    Attributes:
        part: which rows.
        reader: reads them.
        context: what they are judged against.
        rules: to run.
        max_examples: places kept per rule.
        max_tokens: stored tokens per batch; bounds memory.
        has_hashes: hash the sequences as well.
    """

    part: ShardPart
    reader: PartReader
    context: CheckContext
    rules: BatchRules
    max_examples: int
    max_tokens: int
    has_hashes: bool


@dataclass(kw_only=True, slots=True)
class PartScan:
    """What the rows of a part gave.

    Attributes:
        part: which rows.
        num_rows: rows read.
        num_sound_rows: rows whose structure holds.
        num_tokens: stored tokens read.
        tallies: code -> offenders.
        skipped: code -> why; rules that did not judge.
        totals: over the sound rows.
        sequences: hashes of the sequences of the sound rows, batch by batch; none where they are not asked for.
        read_error: why the part could not be read to its end; None where it could.
    """

    part: ShardPart
    num_rows: int = 0
    num_sound_rows: int = 0
    num_tokens: int = 0
    tallies: dict[str, Tally] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    totals: SplitTotals = field(default_factory=SplitTotals)
    sequences: list[SequenceHashes] = field(default_factory=list)
    read_error: str | None = None

    @property
    def num_bytes(self) -> int:
        """The part's share of its file's size."""
        return self.part.num_bytes

    @property
    def is_complete(self) -> bool:
        """Whether every row was read and is sound."""
        return self.read_error is None and self.num_sound_rows == self.num_rows


def scan_part(task: PartTask) -> PartScan:
    """Return what the rows of a part give.

    Raises:
        RuleCrashError: a rule raised.
    """
    scan = PartScan(part=task.part)
    try:
        for batch in batches_of(task):
            _scan_batch(RawRows(batch=batch, context=task.context), task, scan)
    except ArtifactError as error:
        scan.read_error = str(error)
    return scan


def batches_of(task: PartTask) -> Iterator[RowBatch]:
    """Yield the rows of a task's part in order, in batches of at most `max_tokens` stored tokens, or of one row.

    Raises:
        ArtifactError: as `PartReader.iter_batches`.
    """
    part = task.part
    batches = task.reader.iter_batches(
        part.shard, row_groups=part.row_groups, first_row=part.first_row, max_tokens=task.max_tokens
    )
    for batch in batches:
        yield from _pieces(batch, task.max_tokens)


def _scan_batch(raw: RawRows, task: PartTask, scan: PartScan) -> None:
    is_sound = _judge_structure(raw, task, scan)
    num_sound = int(np.count_nonzero(is_sound))
    scan.num_rows += raw.num_rows
    scan.num_tokens += int(raw.row_lengths.sum())
    scan.num_sound_rows += num_sound
    if not num_sound:
        return
    rows = sound_rows(raw, is_sound)
    for rule in task.rules.rows:
        _run(rule, rule.check, rows, task, scan)
    scan.totals.add(rows)
    if task.has_hashes:
        scan.sequences.append(hash_sequences(rows))


def _judge_structure(raw: RawRows, task: PartTask, scan: PartScan) -> BoolArray:
    """Return which rows no structure rule reports; shape [num_rows]."""
    is_sound = np.ones(raw.num_rows, dtype=np.bool_)
    for rule in task.rules.structure:
        offenders = _run(rule, rule.check, raw, task, scan)
        if offenders is not None:
            is_sound[offenders.rows] = False
    return is_sound


def _run[R: (RawRows, SoundRows)](
    rule: Rule, check: Callable[[R], Offenders | None], rows: R, task: PartTask, scan: PartScan
) -> Offenders | None:
    if rule.code in scan.skipped:
        return None
    shard = task.part.shard
    try:
        offenders = check(rows)
        if offenders is not None and len(offenders.rows):
            tally = scan.tallies.setdefault(rule.code, Tally(max_examples=task.max_examples))
            tally.add_offenders(offenders, shard, rows)
    except CannotJudgeError as reason:
        scan.skipped[rule.code] = str(reason)
        return None
    except Exception as error:  # whatever a rule raises is that rule's crash
        raise crash_of(rule, shard, error) from error
    return offenders


def _pieces(batch: RowBatch, max_tokens: int) -> Iterator[RowBatch]:
    """Yield a batch's rows in pieces of at most `max_tokens` stored tokens, or of one row, without copying."""
    begin = 0
    while begin < batch.num_rows:
        limit = batch.token_offsets[begin] + max_tokens
        end = max(int(np.searchsorted(batch.token_offsets, limit, side="right")) - 1, begin + 1)
        yield RowBatch(
            shard=batch.shard,
            first_row=batch.first_row + begin,
            input_ids=batch.input_ids,
            token_offsets=batch.token_offsets[begin : end + 1],
            loss_mask=batch.loss_mask,
            mask_offsets=batch.mask_offsets[begin : end + 1],
            seq_start_id=batch.seq_start_id,
            start_offsets=batch.start_offsets[begin : end + 1],
        )
        begin = end


@dataclass(frozen=True, kw_only=True, slots=True)
class HashTask:
    """A file to hash.

    Attributes:
        shard: its path, relative to the artifact.
        reader: hashes it.
        num_bytes: its size.
    """

    shard: str
    reader: PartReader
    num_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardHash:
    """A file's hash.

    Attributes:
        shard: its path, relative to the artifact.
        sha256: of its bytes, hexadecimal.
        num_bytes: its size.
    """

    shard: str
    sha256: str
    num_bytes: int


Task = PartTask | HashTask
TaskResult = PartScan | ShardHash


def run_task(task: Task) -> TaskResult:
    """Return what a task gives.

    Raises:
        RuleCrashError: a rule raised.
    """
    if isinstance(task, PartTask):
        return scan_part(task)
    return ShardHash(shard=task.shard, sha256=task.reader.sha256(task.shard), num_bytes=task.num_bytes)
