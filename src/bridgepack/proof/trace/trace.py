"""Traces a step to ranks, packs, sequences and text, a pack to its steps, and an input row to both."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bridgepack.config.errors import nearest_name, quote
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.inspection import view_pack
from bridgepack.data.artifact.plan import PlanEntry, entries_of_row, iter_dropped_rows, plan_path
from bridgepack.errors import ArtifactError, ConfigError
from bridgepack.proof.packs import TracedRun, shard_index
from bridgepack.proof.trace.packs import PackTracer, epoch_of, ranks_by_copy, schedule_of_pack
from bridgepack.proof.trace.records import PackTrace, Placement, SourceTrace, StepTrace, TracedBatch, TracedRank
from bridgepack.records import TRAIN, BalanceRecord, DropReason
from bridgepack.records.words import count_text, index_in
from bridgepack.replay.order import FILLER, PackOrder
from bridgepack.replay.settings import ReplaySettings

#: Maximum packs that a message names.
_PACKS_NAMED = 12
#: Data-parallel rank -> packs of each of its micro batches, in order.
_Drawn = dict[int, list[list[int]]]


def trace_step(run: TracedRun, split: str, step: int, *, rank: int | None = None, pack: int | None = None) -> StepTrace:
    """Return the packs that ranks read at a step.

    `split` is `training`, or `validation` for the evaluation after the step; steps count from 1, as the host logs them.
    `rank` is the global rank to show, with the sequences of its packs; `pack` the pack to show, with its text and each
    context-parallel rank's tokens.

    Raises:
        ConfigError: the step, rank or pack does not exist, or the run ends before it.
        ArtifactError: the artifact cannot be read.
    """
    run.artifact.split(split)
    order = run.order(split)
    topology = order.topology
    ranks = range(topology.data_parallel_size) if rank is None else [topology.data_parallel_rank_of(rank)]
    draws = {
        batch: {copy: [part.tolist() for part in order.micro_batches_at(batch, copy)] for copy in ranks}
        for batch in _batches(run, split, step)
    }
    _require_pack(run.artifact, split, draws, step, pack)
    read = {item: order.filler_pack if item == FILLER else item for item in _flat(draws.values())}
    tracer = PackTracer(run, split, read.values())

    def trace_of_item(item: int) -> Any:
        return tracer.trace(
            read[item],
            is_filler=item == FILLER,
            has_sequences=rank is not None or read[item] == pack,
            context_parallel_size=topology.context_parallel_size if read[item] == pack else 1,
        )

    traces = [_batch(tracer, order, batch, draw, trace_of_item) for batch, draw in draws.items()]
    return StepTrace(
        artifact=str(run.artifact.folder),
        split=split,
        step=step,
        num_steps=run.schedule.num_steps,
        data_parallel_size=topology.data_parallel_size,
        world_size=topology.world_size,
        rank=rank,
        batches=tuple(traces),
        view=None if pack is None else view_pack(run.artifact, split, pack),
        balance=_balance_at(run.artifact.manifest.balance, order.settings, traces[0]) if split == TRAIN else None,
    )


def _batch(
    tracer: PackTracer, order: PackOrder, batch: int, draws: _Drawn, trace_of: Callable[[int], Any]
) -> TracedBatch:
    ranks = ranks_by_copy(order.topology)
    return TracedBatch(
        batch=batch,
        epoch=epoch_of(order.settings, batch),
        ranks=tuple(
            TracedRank(
                data_parallel_rank=copy,
                global_ranks=ranks[copy],
                micro_batches=tuple(tuple(map(trace_of, part)) for part in parts),
                sources=tracer.sources_of(_real_packs([{copy: parts}])),
            )
            for copy, parts in draws.items()
        ),
        sources=tracer.sources_of(_real_packs([draws])),
    )


def _balance_at(balance: BalanceRecord | None, run: ReplaySettings, batch: TracedBatch) -> str | None:
    """Return what the packs were balanced for, and whether that applies to this batch of this run."""
    if balance is None:
        return None
    record = replace(
        balance,
        loader=run.loader,
        loader_seed=run.seed,
        data_sharding=run.data_sharding,
        data_parallel_size=run.topology.data_parallel_size,
        global_batch_size=run.global_batch_size,
    )
    differences = ", ".join(f"{name} is {value}" for name, (_, value) in balance.differences(record).items())
    why_not = differences or (f"this is epoch {batch.epoch}" if batch.epoch not in (1, None) else "")
    return f"packs are balanced {balance.describe()}" + (f". Not here: {why_not}" if why_not else "")


def trace_pack(run: TracedRun, split: str, pack: int, *, limit: int) -> PackTrace:
    """Return a pack with its sequences, its text, and the times at which it is read.

    Raises:
        ConfigError: the pack does not exist, or the host cannot run with the settings.
        ArtifactError: the artifact cannot be read.
    """
    context = run.context_parallel_size(split)
    return PackTrace(
        artifact=str(run.artifact.folder),
        split=split,
        pack=PackTracer(run, split, [pack]).trace(pack, context_parallel_size=context),
        view=view_pack(run.artifact, split, pack),
        schedule=schedule_of_pack(run, split, pack, limit=limit),
    )


def _batches(run: TracedRun, split: str, step: int) -> Sequence[int]:
    """Return the batches of a step: itself, or those of the evaluation after it."""
    schedule, first = run.schedule, run.options.resume_step + 1
    end = schedule.num_steps
    if split == TRAIN:
        if step < first or (end is not None and step > end):
            allowed_steps = f"{first} to {'any' if end is None else end}"
            raise ConfigError(f"--step is {step}; allowed: {allowed_steps}, as Megatron-Bridge logs them.")
        return [step]
    steps = list(schedule.batches_after(step))
    if step == schedule.num_steps:
        steps += schedule.final_batches()
    if steps:
        return steps
    period = f"every {schedule.eval_interval} steps" if schedule.eval_interval else "never during training"
    last = "" if schedule.num_steps is None else f" and after step {schedule.num_steps}, the last"
    raise ConfigError(
        f"--step is {step}; the run does not evaluate after it, but {period}{last}, {schedule.eval_iters} batches each "
        "time. Choose another step."
    )


def _real_packs(batches: Iterable[_Drawn]) -> list[int]:
    """Return the packs that are read for training, once per reading."""
    return [item for item in _flat(batches) if item != FILLER]


def _flat(batches: Iterable[_Drawn]) -> list[int]:
    return [item for draws in batches for micro_batches in draws.values() for part in micro_batches for item in part]


def _require_pack(artifact: Artifact, split: str, draws: dict[int, _Drawn], step: int, pack: int | None) -> None:
    pack_ids = sorted(set(_real_packs(draws.values())))
    if pack is None or pack in pack_ids:
        return
    num_packs = artifact.split(split).statistics.num_packs
    if not 0 <= pack < num_packs:
        raise ConfigError(f"--pack is {pack}; allowed: 0 to {num_packs - 1}, the packs of the {split} split.")
    shown_ids = ", ".join(map(str, pack_ids[:_PACKS_NAMED])) + (", ..." if len(pack_ids) > _PACKS_NAMED else "")
    raise ConfigError(
        f"--pack is {pack}; step {step} reads, of these ranks: {shown_ids}. Choose one of them, or omit --step to see "
        f"when pack {pack} is read."
    )


_FILES_NAMED = 5
#: The largest number of a row.
_MOST_ROWS = 2**63 - 1


def parse_source(text: str) -> tuple[str, int]:
    """Return (file, row) of `FILE:ROW`; rows count from 1; raises ConfigError if it does not have that form."""
    file, separator, number = text.rpartition(":")
    row = index_in(_MOST_ROWS + 1, number)
    if not separator or not file or not row:
        raise ConfigError(
            f"--source is {quote(text)}; allowed: FILE:ROW, rows counted from 1, e.g. data/chats.jsonl:17."
        )
    return file, row


def trace_source(run: TracedRun, file: str, row: int, *, limit: int) -> SourceTrace:
    """Return the locations of an input row in the artifact.

    `file` is its name in the manifest, the same path in another form, or the path's end; `row` counts from 1: a line, a
    Parquet or Arrow row, or an array element. `limit` is the maximum times of reading to list.

    Raises:
        ConfigError: the artifact was not built from that file, or the row does not exist.
        ArtifactError: the artifact cannot be read.
    """
    artifact = run.artifact
    known_path = _known_file(artifact, file)
    placements = [
        _placement(run, split.name, entry, limit)
        for split in artifact.manifest.splits
        for entry in entries_of_row(artifact, split.name, _indices(artifact, split.name, known_path), row)
    ]
    drops = tuple(drop for drop in iter_dropped_rows(artifact, row=row) if (drop.file, drop.row) == (known_path, row))
    return SourceTrace(
        artifact=str(artifact.folder),
        file=known_path,
        row=row,
        placements=tuple(placements),
        drops=drops,
        sources={
            split.name: split.sources[split.inputs[index].source]
            for split in artifact.manifest.splits
            if split.is_mixture
            for index in _indices(artifact, split.name, known_path)
        },
        note=None if placements or drops else _why_nowhere(artifact, known_path, row),
    )


def _placement(run: TracedRun, split: str, entry: PlanEntry, limit: int) -> Placement:
    place = shard_index(run.artifact, split).place_of(entry.pack)
    view = view_pack(run.artifact, split, entry.pack)
    if entry.position >= len(view.sequences):
        raise ArtifactError(
            f"{plan_path(run.artifact, split)} has sequence {entry.position} of pack {entry.pack}; the pack has "
            f"{len(view.sequences)}. The artifact was changed; `bridgepack prove sources` shows where."
        )
    context = run.context_parallel_size(split)
    # ranges are the sequence's, counts the pack's
    slices = PackTracer(run, split, [entry.pack]).context_slices(entry.pack, context) if context > 1 else ()
    return Placement(
        split=split,
        pack=entry.pack,
        shard=place.shard,
        shard_row=place.row,
        is_truncated=entry.is_truncated,
        sequence=view.sequences[entry.position],
        context=tuple(
            replace(item, ranges=tuple(part for part in item.ranges if part.sequence == entry.position))
            for item in slices
        ),
        schedule=schedule_of_pack(run, split, entry.pack, limit=limit),
    )


def _indices(artifact: Artifact, split: str, file: str) -> list[int]:
    record = artifact.manifest.split(split)
    inputs = record.inputs if record is not None else ()
    return [index for index, item in enumerate(inputs) if item.path == file]


def _known_file(artifact: Artifact, file: str) -> str:
    names = list(dict.fromkeys(item.path for split in artifact.manifest.splits for item in split.inputs))
    if file in names:
        return file
    place = Path(file).absolute()
    names_of_place = [name for name in names if Path(name).absolute() == place]
    ends = names_of_place or [name for name in names if Path(name).parts[-len(Path(file).parts) :] == Path(file).parts]
    if len(ends) == 1:
        return ends[0]
    if ends:
        raise ConfigError(f"--source is {file!r}, the end of {len(ends)} inputs: {_list_of(ends)}. Give more of it.")
    nearest = nearest_name(file, names)
    hint = f"Did you mean {nearest!r}?" if nearest else f"Its inputs: {_list_of(names)}."
    raise ConfigError(f"--source is {file!r}; the artifact was not built from it. {hint}")


def _why_nowhere(artifact: Artifact, file: str, row: int) -> str:
    missing = [split.name for split in artifact.manifest.splits if not plan_path(artifact, split.name).is_file()]
    if missing:
        return f"the artifact has no plan of its {' and '.join(missing)} split, so its rows cannot be located"
    num_rows = max(item.num_rows for split in artifact.manifest.splits for item in split.inputs if item.path == file)
    num_blank = sum(split.statistics.num_blank_lines for split in artifact.manifest.splits)
    if row > num_rows + num_blank:
        raise ConfigError(f"--source is {file}:{row}; the file has {count_text(num_rows, 'row')}, counted from 1.")
    if any(DropReason.NOT_SAMPLED in split.drops for split in artifact.manifest.splits):
        return f"{DropReason.NOT_SAMPLED}: its source's settings and the seed leave it out"
    return "it is a blank line, not a row" if num_blank else "it is in neither plan nor ledger"


def _list_of(names: list[str]) -> str:
    return ", ".join(names[:_FILES_NAMED]) + (", ..." if len(names) > _FILES_NAMED else "")
