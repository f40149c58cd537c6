"""Results of a trace: steps, ranks, packs, sequences, and where an input row went."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from bridgepack.data.artifact.inspection import PackView, SequenceView
from bridgepack.data.artifact.plan import DroppedRow
from bridgepack.records import SourceRecord
from bridgepack.records.results import Result
from bridgepack.records.words import count_text


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedSequence:
    """One sequence of a pack."""

    position: int  #: position in the pack, from 0
    file: str | None  #: input file; None if the artifact does not say
    row: int | None  #: row of that file, from 1
    runtime_length: int  #: tokens that the model sees, without alignment padding
    num_trained_tokens: int  #: tokens that the host trains
    is_truncated: bool
    first_token: int  #: start in its row if the row was split, stored coordinates; otherwise 0


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenRange:
    """Tokens of one sequence of a pack, or of the tail after the last sequence."""

    sequence: int | None  #: its position in the pack; None for the tail
    start: int  #: first token, runtime, relative to the sequence's start
    stop: int  #: one past the last


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextSlice:
    """One context-parallel rank's tokens of a pack."""

    context_rank: int  #: rank among those that share the pack
    num_tokens: int  #: with tail and padding
    num_trained_tokens: int
    ranges: tuple[TokenRange, ...]  #: in the rank's own order


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedPack:
    """One pack of a micro batch."""

    pack: int  #: row of the split, from 0
    shard: str
    shard_row: int  #: of that shard, from 0
    is_filler: bool  #: only fills up the batch: the host reads it with a loss mask of zeros
    num_sequences: int
    num_tokens: int  #: runtime tokens of its sequences, without alignment padding
    num_trained_tokens: int  #: tokens that the host trains; 0 for a filler
    sequences: tuple[TracedSequence, ...] = ()  #: in row order; empty if no rank or pack was requested
    #: tokens of each context-parallel rank; empty without context parallelism, or if no pack was requested
    context: tuple[ContextSlice, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedSource:
    """Totals of some packs for one source, without filler packs."""

    name: tuple[str, ...]  #: its name in reports, after those of the mixtures around it
    num_rows: int  #: each counted once, even if it is repeated or split
    num_tokens: int  #: runtime tokens, without alignment padding
    num_trained_tokens: int  #: tokens that the host trains


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedRank:
    """What one data-parallel rank reads at a step."""

    data_parallel_rank: int  #: which copy of the model
    global_ranks: tuple[int, ...]  #: processes of that copy, which all get these packs
    micro_batches: tuple[tuple[TracedPack, ...], ...]  #: the packs of each, in order
    sources: tuple[TracedSource, ...]  #: totals of its packs per source, in the recipe's order


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedBatch:
    """One global batch."""

    batch: int  #: the step, or for validation the evaluation batch, counted over the run from 1
    epoch: int | None  #: from 1; None if not applicable
    ranks: tuple[TracedRank, ...]
    sources: tuple[TracedSource, ...]  #: totals of these ranks' packs


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTrace(Result):
    """The packs that ranks read at a step."""

    artifact: str
    split: str  #: `training` or `validation`
    step: int  #: as the host logs it; for validation the step after which it evaluates
    num_steps: int | None  #: of the run; None where nothing says it
    data_parallel_size: int
    world_size: int
    rank: int | None  #: requested global rank; None for all
    batches: tuple[TracedBatch, ...]  #: one for training; for validation, those of the evaluation after the step
    view: PackView | None = None  #: the requested pack, with its text; None if none was requested
    balance: str | None = None  #: what the packs were balanced for, and whether that applies here; None if not balanced

    def headline(self) -> str:
        """Return what came out, in one line."""
        ranks = [rank for batch in self.batches for rank in batch.ranks]
        packs = sum(len(packs) for rank in ranks for packs in rank.micro_batches)
        read = f"{count_text(packs, 'pack')} on {count_text(len(ranks), 'data-parallel rank')}"
        return f"{self.artifact}: {self.split} step {self.step}: {read}"

    def table(self) -> list[dict[str, Any]]:
        """Return the packs, each with the batch, rank and micro batch that reads it."""
        return [
            {"batch": batch.batch, "data_parallel_rank": rank.data_parallel_rank, "micro_batch": number, **asdict(pack)}
            for batch in self.batches
            for rank in batch.ranks
            for number, packs in enumerate(rank.micro_batches)
            for pack in packs
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenAt:
    """One time at which a run reads a pack."""

    step: int  #: as the host logs it; for validation, the evaluation batch
    epoch: int | None  #: from 1; None if not applicable
    after_step: int | None  #: for validation, the step after which that evaluation runs; None for training
    data_parallel_rank: int  #: which copy of the model
    global_ranks: tuple[int, ...]  #: the processes of that copy
    micro_batch: int  #: of the step, from 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """The times at which a run reads a pack."""

    num_times: int
    num_steps: int | None  #: of the run; None where nothing says it
    seen: tuple[SeenAt, ...]  #: the first of them, in order
    note: str | None = None  #: why there are none, if known


@dataclass(frozen=True, kw_only=True, slots=True)
class PackTrace(Result):
    """A pack, and when it is read."""

    artifact: str
    split: str
    pack: TracedPack
    view: PackView
    schedule: Schedule

    def headline(self) -> str:
        """Return what came out, in one line."""
        read = count_text(self.schedule.num_times, "time")
        return f"{self.artifact}: {self.split} pack {self.view.index}, read {read}"

    def table(self) -> list[dict[str, Any]]:
        """Return the times at which it is read."""
        return [asdict(time) for time in self.schedule.seen]


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Location of an input row in the artifact."""

    split: str
    pack: int  #: row of the split, from 0
    shard: str
    shard_row: int  #: of that shard, from 0
    is_truncated: bool
    sequence: SequenceView
    context: tuple[ContextSlice, ...]  #: each context-parallel rank's tokens of the sequence
    schedule: Schedule  #: when the pack is read


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceTrace(Result):
    """Result of tracing an input row."""

    TABLE: ClassVar = "placements"

    artifact: str
    file: str  #: name in the manifest
    row: int  #: of that file, from 1
    placements: tuple[Placement, ...]  #: its locations; several for a split row, or for a file named twice
    drops: tuple[DroppedRow, ...]  #: its entries in the ledger
    sources: Mapping[str, SourceRecord]  #: split that is a mixture -> its record of the file's source
    note: str | None = None  #: why there is neither, or what is unknown

    def headline(self) -> str:
        """Return what came out, in one line."""
        packs = ", ".join(f"in {placement.split} pack {placement.pack}" for placement in self.placements[:3])
        more = f" and {len(self.placements) - 3:,} more" if self.placements[3:] else ""
        return f"{self.file} row {self.row}: {packs or ('dropped' if self.drops else 'not packed')}{more}"
