"""Parts of shards, and the work on a part: read its rows, run the structure and row rules, compute totals.

The parts depend only on the shards, never on the number of workers, so the outcome does not depend on it either.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

import numpy as np

from bridgepack.errors import ArtifactError
from bridgepack.records import PartReader, RowBatch, ShardFacts
from bridgepack.rules.judging.context import CannotJudgeError, CheckContext
from bridgepack.rules.judging.judgement import Tally, crash_of
from bridgepack.rules.judging.overlap import SequenceHashes, hash_sequences
from bridgepack.rules.judging.rows import Offenders, Rows, rows_of
from bridgepack.rules.judging.rule import RowRule, StructureRule
from bridgepack.rules.judging.truth import SplitTruth, truth_of


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardPart:
    """Consecutive rows of one shard to judge, or its file to hash."""

    split: str  #: the shard's split
    shard: str  #: its path, relative to the artifact
    num_bytes: int  #: size of the file, or the part's share of it
    row_groups: range | None = None  #: row groups of the part; None for the whole shard
    first_row: int = 0  #: 0-based index of its first row in the shard
    #: 0-based index of the shard's first pack in the split; None behind a shard that cannot be read
    first_pack: int | None = 0
    is_file: bool = False  #: whether the file is hashed and no row is read

    def place(self, index: int) -> str:
        """Return the place of a pack of the shard by its 0-based index there: its number in the split, if known."""
        if self.first_pack is None:
            return f"{self.shard}, index {index} in the file"
        return f"{self.shard} pack {self.first_pack + index}"


def parts_of(split: str, shard: ShardFacts, *, first_pack: int | None = 0, part_tokens: int) -> Iterator[ShardPart]:
    """Yield the parts of a shard in order, cut at the first row group after each multiple of `part_tokens` (stored)."""
    entire = ShardPart(split=split, shard=shard.path, num_bytes=shard.num_bytes or 0, first_pack=first_pack)
    if sum(shard.row_group_tokens) <= part_tokens:
        yield entire
        return
    tokens = list(accumulate(shard.row_group_tokens, initial=0))
    rows = list(accumulate(shard.row_group_rows, initial=0))
    groups = range(1, len(shard.row_group_tokens))
    begins = [group for group in groups if tokens[group] // part_tokens != tokens[group - 1] // part_tokens]
    for begin, end in pairwise([0, *begins, len(shard.row_group_tokens)]):
        num_bytes = entire.num_bytes * tokens[end] // tokens[-1] - entire.num_bytes * tokens[begin] // tokens[-1]
        yield replace(entire, row_groups=range(begin, end), first_row=rows[begin], num_bytes=num_bytes)


@dataclass(kw_only=True, slots=True)
class PartScan:
    """The result of a part."""

    part: ShardPart  #: the rows or the file
    sha256: str = ""  #: checksum of the file, hexadecimal; empty if rows were judged
    num_rows: int = 0  #: rows read
    num_tokens: int = 0  #: stored tokens read
    tallies: dict[str, Tally] = field(default_factory=dict)  #: code -> offenders
    reasons: dict[str, str] = field(default_factory=dict)  #: code of a skipped rule -> why
    truth: SplitTruth = field(default_factory=SplitTruth)  #: totals over the valid rows
    #: hashes of the sequences of the valid rows, batch by batch; empty unless requested
    sequences: list[SequenceHashes] = field(default_factory=list)
    read_error: str | None = None  #: why the part could not be read to its end, or None


@dataclass(frozen=True, kw_only=True, slots=True)
class PartJudge:
    """Judges a part; it can be pickled and runs in any process."""

    reader: PartReader  #: reads rows and hashes files
    context: CheckContext  #: facts that rows are judged against
    structure: tuple[StructureRule, ...]  #: rules that decide which rows are valid
    rows: tuple[RowRule, ...]  #: rules on valid rows
    max_examples: int  #: maximum places kept per rule
    max_tokens: int  #: maximum stored tokens per batch; bounds memory
    hashes_sequences: bool  #: whether to hash the sequences as well

    def __call__(self, part: ShardPart) -> PartScan:
        """Return the result of a part.

        Raises:
            RuleCrashError: a rule raised.
        """
        scan = PartScan(part=part)
        if part.is_file:
            scan.sha256 = self.reader.sha256(part.shard)
            return scan
        try:
            for batch in self.reader.iter_batches(
                part.shard, row_groups=part.row_groups, first_row=part.first_row, max_tokens=self.max_tokens
            ):
                for piece in _pieces(batch, self.max_tokens):
                    self._judge(rows_of(piece, self.context), scan)
        except ArtifactError as error:
            scan.read_error = str(error)
        scan.truth.is_complete = scan.read_error is None and scan.truth.num_rows == scan.num_rows
        return scan

    def _judge(self, raw: Rows, scan: PartScan) -> None:
        is_sound = np.ones(raw.num_rows, dtype=np.bool_)
        for rule in self.structure:
            offenders = self._offenders(rule, raw, scan)
            if offenders is not None:
                is_sound[offenders.rows] = False
        scan.num_rows += raw.num_rows
        scan.num_tokens += int(raw.row_lengths.sum())
        if not is_sound.any():
            return
        rows = raw.only(is_sound)
        for row_rule in self.rows:
            self._offenders(row_rule, rows, scan)
        scan.truth.merge(truth_of(rows))
        if self.hashes_sequences:
            scan.sequences.append(hash_sequences(rows))

    def _offenders(self, rule: StructureRule | RowRule, rows: Rows, scan: PartScan) -> Offenders | None:
        if rule.code in scan.reasons:
            return None
        shard = scan.part.shard
        try:
            offenders: Offenders | None = rule.check(rows)
            if offenders is not None and len(offenders.rows):
                tally = scan.tallies.setdefault(rule.code, Tally(max_examples=self.max_examples))
                tally.add_offenders(offenders, rows, scan.part.place)
        except CannotJudgeError as reason:
            scan.reasons[rule.code] = str(reason)
            return None
        except Exception as error:  # any exception of a rule is that rule's crash
            raise crash_of(rule, shard, error) from error
        return offenders


def _pieces(batch: RowBatch, max_tokens: int) -> Iterator[RowBatch]:
    """Yield a batch's rows in pieces of at most `max_tokens` stored tokens, or of one row, without copying."""
    begin = 0
    while begin < batch.num_rows:
        limit = batch.token_offsets[begin] + max_tokens
        end = max(int(np.searchsorted(batch.token_offsets, limit, side="right")) - 1, begin + 1)
        yield replace(
            batch,
            first_row=batch.first_row + begin,
            token_offsets=batch.token_offsets[begin : end + 1],
            mask_offsets=batch.mask_offsets[begin : end + 1],
            start_offsets=batch.start_offsets[begin : end + 1],
        )
        begin = end
