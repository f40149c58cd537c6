"""The blocks of a trace: what ranks read at a step, when a pack is read, where a source row went."""

from collections.abc import Iterator, Sequence

from bridgepack.proof.trace.records import (
    ContextSlice,
    PackTrace,
    Placement,
    Schedule,
    SourceTrace,
    StepTrace,
    TracedBatch,
    TracedPack,
    TracedRank,
    TracedSource,
)
from bridgepack.records import SourceRecord
from bridgepack.records.words import count_text
from bridgepack.reporting.blocks import Block, Line, Section, Title
from bridgepack.reporting.results import shows
from bridgepack.reporting.results.packs import origin_of, pack_blocks, sequence_block

_RANGES_SHOWN = 12
_RANKS_SHOWN = 8


@shows
def step_blocks(trace: StepTrace, *, limit: int | None = None) -> Iterator[Block]:
    """Yield what ranks read at a step: a line for each pack, then the pack that was asked for.

    `limit` is how many sequences of that pack are drawn.
    """
    ranks, gpus = count_text(trace.data_parallel_size, "data-parallel rank"), count_text(trace.world_size, "GPU")
    yield Title(f"{_where(trace)}, {ranks} on {gpus}")
    if trace.balance is not None:
        yield Line(trace.balance)
    for batch in trace.batches:
        yield Section("", tuple(_batch_lines(batch, trace)))
    if trace.view is not None:
        yield Section("", tuple(_context_lines(_context_of(trace, trace.view.index))))
        yield Section("", tuple(pack_blocks(trace.view, limit=limit)))


@shows
def pack_trace_blocks(trace: PackTrace, *, limit: int | None = None) -> Iterator[Block]:
    """Yield when a pack is read, and its text; `limit` as of `step_blocks`."""
    pack = trace.pack
    place = f"index {pack.shard_row} in {pack.shard}"
    yield Title(f"{trace.split} pack {pack.pack} of {trace.artifact} ({place})")
    yield _schedule(trace.schedule)
    yield Section("", tuple(_context_lines(pack.context)))
    yield Section("", tuple(pack_blocks(trace.view, limit=limit)))


@shows
def source_trace_blocks(trace: SourceTrace) -> Iterator[Block]:
    """Yield where a source row went."""
    yield Title(f"{trace.file} row {trace.row} in {trace.artifact}")
    yield from (_source(split, source) for split, source in trace.sources.items())
    for placement in trace.placements:
        yield Section("", tuple(_placement(placement)))
    for drop in trace.drops:
        yield Section("", (Line(f"dropped from {drop.split}: {drop.reason}: {drop.detail}"), Line("it is never read")))
    if trace.note:
        yield Section("", (Line(f"not in the artifact: {trace.note}"),))


def _source(split: str, source: SourceRecord) -> Line:
    request = "" if source.share_asked is None else f", {source.share_asked:.2%} requested"
    return Line(
        f"{split} from {'/'.join(source.name)}: {count_text(source.num_rows_in, 'row')}, {source.num_sequences:,} "
        f"sequences ({source.num_repeated:,} repeated), {count_text(source.num_tokens, 'token')}, "
        f"{source.num_trained_tokens:,} trained; {source.share_got:.2%} of the mixture{request}"
    )


def _where(trace: StepTrace) -> str:
    of = "" if trace.num_steps is None else f" of {trace.num_steps}"
    if trace.split == "training":
        epoch = trace.batches[0].epoch
        return f"training step {trace.step}{of}" + ("" if epoch is None else f", epoch {epoch}")
    return f"evaluation after step {trace.step}{of}: {len(trace.batches)} batches"


def _batch_lines(batch: TracedBatch, trace: StepTrace) -> Iterator[Line]:
    if trace.split != "training":
        yield Line(f"batch {batch.batch} of evaluation")
    packs = [pack for rank in batch.ranks for part in rank.micro_batches for pack in part]
    num_trained, num_fillers = sum(pack.num_trained_tokens for pack in packs), sum(pack.is_filler for pack in packs)
    subject = "the step" if trace.rank is None else f"rank {trace.rank}"
    filling = f", {num_fillers} of them padding packs" if num_fillers else ""
    is_mixed = len({source.name for step_batch in trace.batches for source in step_batch.sources}) > 1
    sums = tuple(_source_sums(batch.sources)) if is_mixed else ()
    yield Line(f"{subject}: {count_text(len(packs), 'pack')}{filling}, {num_trained:,} trained tokens", sums)
    for rank in batch.ranks:
        sums = tuple(_source_sums(rank.sources)) if is_mixed and len(batch.ranks) > 1 else ()
        name = f"data-parallel rank {rank.data_parallel_rank} ({_ranks(rank.global_ranks)})"
        yield Line(name, (*_rank_lines(rank), *sums))


def _source_sums(sources: Sequence[TracedSource]) -> Iterator[str]:
    for source in sources:
        yield (
            f"from {'/'.join(source.name)}: {count_text(source.num_rows, 'row')}, "
            f"{count_text(source.num_tokens, 'token')}, {source.num_trained_tokens:,} trained"
        )


def _rank_lines(rank: TracedRank) -> Iterator[str]:
    for index, packs in enumerate(rank.micro_batches):
        for pack in packs:
            yield f"micro batch {index:>3}  {_pack_line(pack)}"
            for sequence in pack.sequences:
                cut = ", truncated" if sequence.is_truncated else ""
                yield (
                    f"  {sequence.position:>3}  {origin_of(sequence)}, {sequence.runtime_length:,} tokens, "
                    f"{sequence.num_trained_tokens:,} trained{cut}"
                )


def _pack_line(pack: TracedPack) -> str:
    if pack.is_filler:
        return f"pack {pack.pack:>6}  padding pack that fills the batch, with a loss mask of zeros"
    return (
        f"pack {pack.pack:>6}  {pack.num_sequences:>3} sequences  {pack.num_tokens:>7,} tokens  "
        f"{pack.num_trained_tokens:>7,} trained"
    )


def _ranks(ranks: Sequence[int]) -> str:
    first = ", ".join(map(str, ranks[:_RANKS_SHOWN]))
    more = f", ... {ranks[-1]}" if len(ranks) > _RANKS_SHOWN else ""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {first}{more}"


def _context_of(trace: StepTrace, pack: int) -> tuple[ContextSlice, ...]:
    packs = (item for batch in trace.batches for rank in batch.ranks for part in rank.micro_batches for item in part)
    return next((item.context for item in packs if item.pack == pack and not item.is_filler), ())


def _context_lines(slices: Sequence[ContextSlice]) -> Iterator[Line]:
    """Yield what each context-parallel rank gets: `sequence 0: 0-3, 12-15`, first and last token of each range."""
    for item in slices:
        parts = []
        for tokens in item.ranges[:_RANGES_SHOWN]:
            name = "tail" if tokens.sequence is None else f"sequence {tokens.sequence}"
            parts.append(f"{name}: {tokens.start}-{tokens.stop - 1}")
        more = f"; ... {len(item.ranges) - _RANGES_SHOWN} more" if len(item.ranges) > _RANGES_SHOWN else ""
        yield Line(
            f"context rank {item.context_rank}: {count_text(item.num_tokens, 'token')}, "
            f"{item.num_trained_tokens:,} trained; {'; '.join(parts)}{more}"
        )


def _schedule(schedule: Schedule) -> Line:
    if schedule.note and not schedule.num_times:
        never = "never read in this run: " if schedule.num_steps is not None else ""
        return Line(f"{never}{schedule.note}")
    times = "once" if schedule.num_times == 1 else f"{schedule.num_times} times"
    steps = f" in {count_text(schedule.num_steps, 'step')}" if schedule.num_steps is not None else ""
    items = []
    for read in schedule.seen:
        epoch = "" if read.epoch is None else f", epoch {read.epoch}"
        place = f"step {read.step}{epoch}"
        if read.after_step is not None:
            place = f"batch {read.step} of evaluation, after step {read.after_step}"
        items.append(
            f"{place}: data-parallel rank {read.data_parallel_rank} ({_ranks(read.global_ranks)}), micro batch "
            f"{read.micro_batch}"
        )
    if schedule.num_times > len(schedule.seen):
        items.append(f"... and {schedule.num_times - len(schedule.seen)} more times")
    return Line(f"read {times}{steps}", tuple(items))


def _placement(placement: Placement) -> Iterator[Block]:
    yield Line(
        f"{placement.split} pack {placement.pack}, sequence {placement.sequence.position} "
        f"(index {placement.shard_row} in {placement.shard}){', truncated' if placement.is_truncated else ''}"
    )
    yield _schedule(placement.schedule)
    for item in placement.context:
        ranges = ", ".join(f"{part.start}-{part.stop - 1}" for part in item.ranges[:_RANGES_SHOWN])
        yield Line(f"context rank {item.context_rank}: tokens {ranges or 'none'} of the sequence")
    yield sequence_block(placement.sequence)
