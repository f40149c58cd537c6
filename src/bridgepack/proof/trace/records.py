"""What a trace says: steps, ranks, packs, sequences, and where a source row went."""

from __future__ import annotations

from dataclasses import dataclass

from bridgepack.data.artifact.inspection import PackView, SequenceView
from bridgepack.data.artifact.plan import DroppedRow


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedSequence:
    """One sequence of a pack.

    Attributes:
        position: in the pack, from 0.
        file: it came from; None where the artifact does not say.
        row: of that file, from 1.
        runtime_length: tokens that the model sees, alignment padding not counted.
        num_trained_tokens: tokens that the host trains.
    """

    position: int
    file: str | None
    row: int | None
    runtime_length: int
    num_trained_tokens: int
    is_truncated: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenRange:
    """Tokens of one sequence of a pack, or of the tail behind the last.

    Attributes:
        sequence: its position in the pack; None for the tail.
        start: first token, runtime, counted from the sequence's first.
        stop: one past the last.
    """

    sequence: int | None
    start: int
    stop: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextSlice:
    """What one context-parallel rank gets of a pack.

    Attributes:
        context_rank: among those that share the pack.
        num_tokens: tail and padding counted.
        ranges: in the rank's own order.
    """

    context_rank: int
    num_tokens: int
    num_trained_tokens: int
    ranges: tuple[TokenRange, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedPack:
    """One pack of a micro batch.

    Attributes:
        pack: row of the split, from 0.
        shard_row: of that shard, from 0.
        is_filler: it only fills the batch up: the host reads it with a loss mask of zeros.
        num_tokens: runtime tokens of its sequences, alignment padding not counted.
        num_trained_tokens: tokens that the host trains; 0 for a filler.
        sequences: in row order; empty where no rank or pack was asked for.
        context: what each context-parallel rank gets of it; empty where ranks share no sequences, or no pack was asked
            for.
    """

    pack: int
    shard: str
    shard_row: int
    is_filler: bool
    num_sequences: int
    num_tokens: int
    num_trained_tokens: int
    sequences: tuple[TracedSequence, ...] = ()
    context: tuple[ContextSlice, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedRank:
    """What one data-parallel rank reads at a step.

    Attributes:
        data_parallel_rank: which copy of the model.
        global_ranks: the processes of that copy, all of which are given these packs.
        micro_batches: the packs of each, in order.
    """

    data_parallel_rank: int
    global_ranks: tuple[int, ...]
    micro_batches: tuple[tuple[TracedPack, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedBatch:
    """One global batch.

    Attributes:
        batch: the step, or for validation the batch of evaluation, counted over the run from 1.
        epoch: from 1; None where that has no meaning.
    """

    batch: int
    epoch: int | None
    ranks: tuple[TracedRank, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTrace:
    """What ranks read at a step.

    Attributes:
        split: `training` or `validation`.
        step: as the host logs it; for validation the step after which it evaluates.
        num_steps: of the run; None where nothing says it.
        rank: global rank that was asked for; None for all.
        batches: one for training; those of the evaluation after the step for validation.
        view: the pack that was asked for, with its text; None where none was.
    """

    artifact: str
    split: str
    step: int
    num_steps: int | None
    data_parallel_size: int
    world_size: int
    rank: int | None
    batches: tuple[TracedBatch, ...]
    view: PackView | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenAt:
    """Where a run reads a pack.

    Attributes:
        step: as the host logs it; for validation the batch of evaluation.
        epoch: from 1; None where that has no meaning.
        after_step: for validation, the step after which that evaluation runs; None for training.
        data_parallel_rank: which copy of the model.
        global_ranks: the processes of that copy.
        micro_batch: of the step, from 0.
    """

    step: int
    epoch: int | None
    after_step: int | None
    data_parallel_rank: int
    global_ranks: tuple[int, ...]
    micro_batch: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """When a run reads a pack.

    Attributes:
        num_steps: of the run; None where nothing says it.
        seen: the first of them, in order.
        note: why there are none, where that is known.
    """

    num_times: int
    num_steps: int | None
    seen: tuple[SeenAt, ...]
    note: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PackTrace:
    """A pack, and when it is read."""

    artifact: str
    split: str
    pack: TracedPack
    view: PackView
    schedule: Schedule


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Where a source row lies in the artifact.

    Attributes:
        pack: row of the split, from 0.
        shard_row: of that shard, from 0.
        context: what each context-parallel rank gets of the sequence.
        schedule: when the pack is read.
    """

    split: str
    pack: int
    shard: str
    shard_row: int
    is_truncated: bool
    sequence: SequenceView
    context: tuple[ContextSlice, ...]
    schedule: Schedule


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceTrace:
    """Where a source row went.

    Attributes:
        file: as the manifest has it.
        row: of that file, from 1.
        placements: where it lies; a file that a recipe names twice gives two.
        drops: what the ledger says of it.
        note: why there is neither, and what cannot be said.
    """

    artifact: str
    file: str
    row: int
    placements: tuple[Placement, ...]
    drops: tuple[DroppedRow, ...]
    note: str | None = None
