"""What a trace says: steps, ranks, packs, sequences, and where a source row went."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from bridgepack.data.artifact.inspection import PackView, SequenceView
from bridgepack.data.artifact.plan import DroppedRow
from bridgepack.records import SourceRecord
from bridgepack.records.results import Result


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedSequence:
    """One sequence of a pack."""

    position: int  #: in the pack, from 0
    file: str | None  #: it came from; None where the artifact does not say
    row: int | None  #: of that file, from 1
    runtime_length: int  #: tokens that the model sees, alignment padding not counted
    num_trained_tokens: int  #: tokens that the host trains
    is_truncated: bool
    first_token: int  #: where it begins in a row that was split into several, stored; 0 where none was


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenRange:
    """Tokens of one sequence of a pack, or of the tail behind the last."""

    sequence: int | None  #: its position in the pack; None for the tail
    start: int  #: first token, runtime, counted from the sequence's first
    stop: int  #: one past the last


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextSlice:
    """What one context-parallel rank gets of a pack."""

    context_rank: int  #: among those that share the pack
    num_tokens: int  #: tail and padding counted
    num_trained_tokens: int
    ranges: tuple[TokenRange, ...]  #: in the rank's own order


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedPack:
    """One pack of a micro batch."""

    pack: int  #: row of the split, from 0
    shard: str
    shard_row: int  #: of that shard, from 0
    is_filler: bool  #: it only fills the batch up: the host reads it with a loss mask of zeros
    num_sequences: int
    num_tokens: int  #: runtime tokens of its sequences, alignment padding not counted
    num_trained_tokens: int  #: tokens that the host trains; 0 for a filler
    sequences: tuple[TracedSequence, ...] = ()  #: in row order; empty where no rank or pack was asked for
    #: what each context-parallel rank gets of it; empty where ranks share no sequences, or no pack was asked for
    context: tuple[ContextSlice, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedSource:
    """What some packs have of one source; packs that only fill up do not count."""

    name: tuple[str, ...]  #: what reports call it, below the mixtures that it is part of
    num_rows: int  #: each counted once, however often it is read or in how many pieces
    num_tokens: int  #: runtime, alignment padding not counted
    num_trained_tokens: int  #: tokens that the host trains


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedRank:
    """What one data-parallel rank reads at a step."""

    data_parallel_rank: int  #: which copy of the model
    global_ranks: tuple[int, ...]  #: the processes of that copy, all of which are given these packs
    micro_batches: tuple[tuple[TracedPack, ...], ...]  #: the packs of each, in order
    sources: tuple[TracedSource, ...]  #: sums of its packs, of sources that are there, in the recipe's order


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedBatch:
    """One global batch."""

    batch: int  #: the step, or for validation the batch of evaluation, counted over the run from 1
    epoch: int | None  #: from 1; None where that has no meaning
    ranks: tuple[TracedRank, ...]
    sources: tuple[TracedSource, ...]  #: sums of the packs of these ranks


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTrace(Result):
    """What ranks read at a step."""

    artifact: str
    split: str  #: `training` or `validation`
    step: int  #: as the host logs it; for validation the step after which it evaluates
    num_steps: int | None  #: of the run; None where nothing says it
    data_parallel_size: int
    world_size: int
    rank: int | None  #: global rank that was asked for; None for all
    batches: tuple[TracedBatch, ...]  #: one for training; those of the evaluation after the step for validation
    view: PackView | None = None  #: the pack that was asked for, with its text; None where none was
    balance: str | None = None  #: what the packs were balanced for, and whether that holds here; None where not

    def table(self) -> list[dict[str, Any]]:
        """Return the packs, with the batch, the rank and the micro batch that reads them."""
        return [
            {"batch": batch.batch, "data_parallel_rank": rank.data_parallel_rank, "micro_batch": number, **asdict(pack)}
            for batch in self.batches
            for rank in batch.ranks
            for number, packs in enumerate(rank.micro_batches)
            for pack in packs
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenAt:
    """Where a run reads a pack."""

    step: int  #: as the host logs it; for validation the batch of evaluation
    epoch: int | None  #: from 1; None where that has no meaning
    after_step: int | None  #: for validation, the step after which that evaluation runs; None for training
    data_parallel_rank: int  #: which copy of the model
    global_ranks: tuple[int, ...]  #: the processes of that copy
    micro_batch: int  #: of the step, from 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """When a run reads a pack."""

    num_times: int
    num_steps: int | None  #: of the run; None where nothing says it
    seen: tuple[SeenAt, ...]  #: the first of them, in order
    note: str | None = None  #: why there are none, where that is known


@dataclass(frozen=True, kw_only=True, slots=True)
class PackTrace(Result):
    """A pack, and when it is read."""

    artifact: str
    split: str
    pack: TracedPack
    view: PackView
    schedule: Schedule

    def table(self) -> list[dict[str, Any]]:
        """Return the times at which it is read."""
        return [asdict(seen) for seen in self.schedule.seen]


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Where a source row lies in the artifact."""

    split: str
    pack: int  #: row of the split, from 0
    shard: str
    shard_row: int  #: of that shard, from 0
    is_truncated: bool
    sequence: SequenceView
    context: tuple[ContextSlice, ...]  #: what each context-parallel rank gets of the sequence
    schedule: Schedule  #: when the pack is read


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceTrace(Result):
    """Where a source row went."""

    TABLE: ClassVar = "placements"

    artifact: str
    file: str  #: as the manifest has it
    row: int  #: of that file, from 1
    placements: tuple[Placement, ...]  #: where it lies; a row that was split, or a file named twice, gives several
    drops: tuple[DroppedRow, ...]  #: what the ledger says of it
    sources: Mapping[str, SourceRecord]  #: split that is a mixture -> what it has of the file's source
    note: str | None = None  #: why there is neither, and what cannot be said
