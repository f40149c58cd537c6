"""Renders proofs as text for a terminal: verifications, comparisons of masks, traces."""

from collections.abc import Iterator, Sequence

from bridgepack.proof.masks.records import DerivationCount, MaskFinding, MaskReport
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
from bridgepack.proof.verify.records import RowDifference, VerifyReport
from bridgepack.records import SourceRecord
from bridgepack.records.words import counted
from bridgepack.reporting.packs import draw_pack, draw_sequence, origin_of
from bridgepack.reporting.text import printable

_MARKS = {"same": "ok", "differs": "DIFFERS", "could not run": "not run"}


def describe_verification(report: VerifyReport) -> str:
    """Return the text of a verification: what was compared, the first difference and its cause."""
    how = "every pack" if report.mode == "all" else f"a sample of packs, seed {report.seed}"
    lines = [f"{report.artifact}: {how}, compared with the sources"]
    lines += [f"  {_MARKS[check.outcome]:<8} {check.name:<16} {check.detail}" for check in report.checks]
    lines += [f"  note     {note}" for note in report.notes]
    if report.differences:
        lines += ["", *_difference_lines(report.differences[0])]
    lines += ["", _verdict(report)]
    return printable("\n".join(lines))


def _difference_lines(item: RowDifference) -> Iterator[str]:
    place = f"{item.split} pack {item.pack} (index {item.shard_row} in {item.shard})"
    if item.sequence is not None:
        place += f", sequence {item.sequence}"
    yield f"first difference: {place}"
    if item.file is not None:
        yield f"  source   {item.file} row {item.row}"
    token = "" if item.token is None else f", token {item.token} of the sequence"
    yield f"  column   {item.column or 'all'}{token}"
    yield f"  artifact {item.in_artifact!s}"
    yield f"  sources  {item.from_source!s}"
    yield f"  cause    {', '.join(item.causes)}: {item.cause}"


def _verdict(report: VerifyReport) -> str:
    compared = f"{report.num_packs_compared:,} of {report.num_packs:,} packs compared with the sources"
    if report.outcome == "same":
        return f"verified: {compared}"
    if report.outcome == "differs":
        return f"differs from the sources: {compared}, {report.num_packs_different:,} differ"
    return f"not verified: {compared}; all that could be compared is the same"


_REASONS_SHOWN = 4


def describe_masks(report: MaskReport) -> str:
    """Return the text of a comparison: what was compared, how much each derivation could judge, and the findings."""
    how = "every row" if report.mode == "all" else f"a sample of rows, seed {report.seed}"
    lines = [f"{report.target}: {how}, {report.num_rows_read:,} of {report.num_rows:,}"]
    lines += _count_lines(report)
    lines += [f"  note: {note}" for note in report.notes]
    for item in report.findings:
        lines += ["", *_finding_lines(item)]
    hidden = sum(report.kinds.values()) - len(report.findings)
    if hidden:
        lines += ["", f"... and {hidden:,} more findings (--limit shows more)"]
    lines += [
        "",
        *(f"  {kind:<26} {count:>8,} sequences" for kind, count in report.kinds.items()),
        _mask_verdict(report),
    ]
    return printable("\n".join(lines))


def _count_lines(report: MaskReport) -> Iterator[str]:
    if report.drops:
        drops = ", ".join(f"{reason} {count:,}" for reason, count in report.drops.items())
        yield f"  rows dropped: {drops}"
    judges = ", ".join(f"{count:,} judged by {number} derivations" for number, count in report.judged_by.items())
    yield f"  {counted(report.num_sequences, 'sequence')}: {judges or 'none judged'}"
    for item in report.derivations:
        yield from _derivation_lines(item)


def _derivation_lines(item: DerivationCount) -> Iterator[str]:
    in_part = f", {item.num_in_part:,} partly" if item.num_in_part else ""
    silent = f", {item.num_not_judged:,} not judged" if item.num_not_judged else ""
    yield f"  {item.name:<22} judged {item.num_judged:,}{in_part}{silent}"
    reasons = list(item.reasons.items())
    for reason, count in reasons[:_REASONS_SHOWN]:
        yield f"  {'':<22} {count:>8,}: {reason}"
    if len(reasons) > _REASONS_SHOWN:
        yield f"  {'':<22} ... and {len(reasons) - _REASONS_SHOWN} other reasons"


def _finding_lines(item: MaskFinding) -> Iterator[str]:
    finding = item.finding
    message = "" if finding.message is None else f", message {finding.message}"
    yield f"{finding.kind}: {item.file} row {item.row}{message} ({item.split})"
    against = f"; disagreeing: {', '.join(finding.derivations)}" if finding.derivations else ""
    token = "" if finding.token is None else f", from token {finding.token} on"
    yield f"  {finding.detail}{token}{against}"
    for name, text in finding.texts.items():
        yield f"  {name}: {printable(text)!r}"
    yield f"  {finding.advice}"


def _mask_verdict(report: MaskReport) -> str:
    if report.outcome == "disagree":
        return f"masks disagree: {report.num_with_findings:,} of {report.num_sequences:,} sequences with findings"
    if report.outcome == "could not run":
        if not report.num_rows_read:
            return "not compared: the sources have no rows. Check data.train, or choose another --split."
        return f"not compared: none of {report.num_sequences:,} sequences could be judged"
    unjudged = f"; {report.num_not_judged:,} could not be judged" if report.num_not_judged else ""
    return f"masks agree: {report.num_agreed:,} of {report.num_sequences:,} sequences{unjudged}"


_RANGES_SHOWN = 12
_RANKS_SHOWN = 8


def describe_step(trace: StepTrace, *, has_colour: bool, limit: int | None = None) -> str:
    """Return what ranks read at a step: a line for each pack, then the pack that was asked for.

    `limit` is how many sequences of that pack are drawn.
    """
    ranks, gpus = counted(trace.data_parallel_size, "data-parallel rank"), counted(trace.world_size, "GPU")
    lines = [f"{_where(trace)}, {ranks} on {gpus}"]
    lines += [] if trace.balance is None else [trace.balance]
    for batch in trace.batches:
        lines += ["", *_batch_lines(batch, trace)]
    if trace.view is not None:
        lines += ["", *_context_lines(_context_of(trace, trace.view.index))]
        lines += [draw_pack(trace.view, has_colour=has_colour, limit=limit)]
    return "\n".join(lines)


def describe_pack(trace: PackTrace, *, has_colour: bool, limit: int | None = None) -> str:
    """Return when a pack is read, and its text; arguments as of `describe_step`."""
    pack = trace.pack
    place = f"index {pack.shard_row} in {pack.shard}"
    lines = [f"{trace.split} pack {pack.pack} of {printable(str(trace.artifact))} ({place})"]
    lines += [*_schedule_lines(trace.schedule), ""]
    lines += _context_lines(pack.context)
    lines += [draw_pack(trace.view, has_colour=has_colour, limit=limit)]
    return "\n".join(lines)


def describe_source(trace: SourceTrace, *, has_colour: bool) -> str:
    """Return where a source row went."""
    lines = [f"{printable(trace.file)} row {trace.row} in {printable(str(trace.artifact))}"]
    lines += [_source_line(split, source) for split, source in trace.sources.items()]
    for placement in trace.placements:
        lines += ["", *_placement_lines(placement, has_colour=has_colour)]
    for drop in trace.drops:
        lines += ["", f"dropped from {drop.split}: {drop.reason}: {printable(drop.detail)}", "it is never read"]
    if trace.note:
        lines += ["", f"not in the artifact: {trace.note}"]
    return "\n".join(lines)


def _source_line(split: str, source: SourceRecord) -> str:
    asked = "" if source.share_asked is None else f", {source.share_asked:.2%} requested"
    return (
        f"{split} from {printable('/'.join(source.name))}: {counted(source.num_rows_in, 'row')}, "
        f"{source.num_sequences:,} "
        f"sequences ({source.num_repeated:,} repeated), {counted(source.num_tokens, 'token')}, "
        f"{source.num_trained_tokens:,} "
        f"trained; {source.share_got:.2%} of the mixture{asked}"
    )


def _where(trace: StepTrace) -> str:
    of = "" if trace.num_steps is None else f" of {trace.num_steps}"
    if trace.split == "training":
        epoch = trace.batches[0].epoch
        return f"training step {trace.step}{of}" + ("" if epoch is None else f", epoch {epoch}")
    return f"evaluation after step {trace.step}{of}: {len(trace.batches)} batches"


def _batch_lines(batch: TracedBatch, trace: StepTrace) -> Iterator[str]:
    if trace.split != "training":
        yield f"batch {batch.batch} of evaluation"
    packs = [pack for rank in batch.ranks for part in rank.micro_batches for pack in part]
    trained, num_fillers = sum(pack.num_trained_tokens for pack in packs), sum(pack.is_filler for pack in packs)
    whose = "the step" if trace.rank is None else f"rank {trace.rank}"
    filling = f", {num_fillers} of them padding packs" if num_fillers else ""
    yield f"{whose}: {counted(len(packs), 'pack')}{filling}, {trained:,} trained tokens"
    is_mixed = len({source.name for found in trace.batches for source in found.sources}) > 1
    if is_mixed:
        yield from _source_sums(batch.sources)
    for rank in batch.ranks:
        yield f"data-parallel rank {rank.data_parallel_rank} ({_ranks(rank.global_ranks)})"
        yield from _rank_lines(rank)
        if is_mixed and len(batch.ranks) > 1:
            yield from _source_sums(rank.sources)


def _source_sums(sources: Sequence[TracedSource]) -> Iterator[str]:
    for source in sources:
        yield (
            f"  from {printable('/'.join(source.name))}: {counted(source.num_rows, 'row')}, "
            f"{counted(source.num_tokens, 'token')}, "
            f"{source.num_trained_tokens:,} trained"
        )


def _rank_lines(rank: TracedRank) -> Iterator[str]:
    for index, packs in enumerate(rank.micro_batches):
        for pack in packs:
            yield f"  micro batch {index:>3}  {_pack_line(pack)}"
            for sequence in pack.sequences:
                cut = ", truncated" if sequence.is_truncated else ""
                yield (
                    f"    {sequence.position:>3}  {origin_of(sequence)}, {sequence.runtime_length:,} tokens, "
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
    shown = ", ".join(map(str, ranks[:_RANKS_SHOWN]))
    more = f", ... {ranks[-1]}" if len(ranks) > _RANKS_SHOWN else ""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {shown}{more}"


def _context_of(trace: StepTrace, pack: int) -> tuple[ContextSlice, ...]:
    found = (item for batch in trace.batches for rank in batch.ranks for part in rank.micro_batches for item in part)
    return next((item.context for item in found if item.pack == pack and not item.is_filler), ())


def _context_lines(slices: Sequence[ContextSlice]) -> Iterator[str]:
    """Yield what each context-parallel rank gets: `sequence 0: 0-3, 12-15`, first and last token of each range."""
    for item in slices:
        parts = []
        for found in item.ranges[:_RANGES_SHOWN]:
            name = "tail" if found.sequence is None else f"sequence {found.sequence}"
            parts.append(f"{name}: {found.start}-{found.stop - 1}")
        more = f"; ... {len(item.ranges) - _RANGES_SHOWN} more" if len(item.ranges) > _RANGES_SHOWN else ""
        yield (
            f"context rank {item.context_rank}: {counted(item.num_tokens, 'token')}, "
            f"{item.num_trained_tokens:,} trained; "
            f"{'; '.join(parts)}{more}"
        )
    if slices:
        yield ""


def _schedule_lines(schedule: Schedule) -> Iterator[str]:
    if schedule.note and not schedule.num_times:
        known = "never read in this run: " if schedule.num_steps is not None else ""
        yield f"{known}{schedule.note}"
        return
    times = "once" if schedule.num_times == 1 else f"{schedule.num_times} times"
    yield f"read {times}" + (f" in {counted(schedule.num_steps, 'step')}" if schedule.num_steps is not None else "")
    for found in schedule.seen:
        epoch = "" if found.epoch is None else f", epoch {found.epoch}"
        place = f"step {found.step}{epoch}"
        if found.after_step is not None:
            place = f"batch {found.step} of evaluation, after step {found.after_step}"
        yield (
            f"  {place}: data-parallel rank {found.data_parallel_rank} ({_ranks(found.global_ranks)}), micro batch "
            f"{found.micro_batch}"
        )
    if schedule.num_times > len(schedule.seen):
        yield f"  ... and {schedule.num_times - len(schedule.seen)} more times"


def _placement_lines(placement: Placement, *, has_colour: bool) -> Iterator[str]:
    yield (
        f"{placement.split} pack {placement.pack}, sequence {placement.sequence.position} "
        f"(index {placement.shard_row} in {placement.shard}){', truncated' if placement.is_truncated else ''}"
    )
    yield from _schedule_lines(placement.schedule)
    for item in placement.context:
        ranges = ", ".join(f"{part.start}-{part.stop - 1}" for part in item.ranges[:_RANGES_SHOWN])
        yield f"context rank {item.context_rank}: tokens {ranges or 'none'} of the sequence"
    yield ""
    yield draw_sequence(placement.sequence, has_colour=has_colour)
