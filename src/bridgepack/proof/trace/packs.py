"""Packs for a trace: when a run reads them, their sequences with sources, and the tokens of each context rank."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import islice, pairwise

import numpy as np

from bridgepack.data.artifact.plan import entries_of_packs
from bridgepack.geometry import IntArray, seq_boundaries
from bridgepack.proof.packs import TracedRun, read_packs, shard_index
from bridgepack.proof.trace.records import (
    ContextSlice,
    Schedule,
    SeenAt,
    TokenRange,
    TracedPack,
    TracedSequence,
    TracedSource,
)
from bridgepack.records import TRAIN, PackedRow
from bridgepack.records.sequences import is_learned
from bridgepack.replay.collate import CollateSettings, predict_batch
from bridgepack.replay.order import PackOrder
from bridgepack.replay.settings import EvaluationSchedule, ReplaySettings, Topology
from bridgepack.replay.slicing import slice_row

_NO_WORLD_SIZE = (
    "steps and ranks are unknown: the recipe has no parallelism.num_gpus. Give --world-size, the run's GPUs"
)


def schedule_of_pack(run: TracedRun, split: str, pack: int, *, limit: int) -> Schedule:
    """Return the times at which a run reads a pack, without fillers; lists at most `limit` of them, and counts all.

    Raises:
        ConfigError: the host cannot run with the settings.
    """
    if not run.has_world_size:
        return Schedule(num_times=0, num_steps=None, seen=(), note=_NO_WORLD_SIZE)
    num_steps, evaluation = run.schedule.num_steps, None if split == TRAIN else run.schedule
    if num_steps is None:
        note = "the number of the run's steps is unknown. Set schedule.num_epochs or train_iters"
        return Schedule(num_times=0, num_steps=None, seen=(), note=note)
    last = num_steps if evaluation is None else max(evaluation.final_batches(), default=0)
    if last == 0:
        return Schedule(num_times=0, num_steps=None, seen=(), note="the run does not evaluate (eval_iters is 0)")
    order = run.order(split)
    sightings = (sighting for sighting in order.steps_of(pack, last_step=last) if not sighting.is_filler)
    ranks = ranks_by_copy(order.topology)
    times = tuple(
        SeenAt(
            step=sighting.step,
            epoch=epoch_of(order.settings, sighting.step, sighting.micro_batch),
            after_step=None if evaluation is None else evaluated_after(evaluation, sighting.step),
            data_parallel_rank=sighting.data_parallel_rank,
            global_ranks=ranks[sighting.data_parallel_rank],
            micro_batch=sighting.micro_batch,
        )
        for sighting in islice(sightings, limit)
    )
    num_times = len(times) + sum(1 for _ in sightings)
    why_never = None if num_times else _why_never(order)
    return Schedule(num_times=num_times, num_steps=num_steps, seen=times, note=why_never)


def ranks_by_copy(topology: Topology) -> tuple[tuple[int, ...], ...]:
    """Return the global ranks of every data-parallel rank, ascending."""
    copies: list[list[int]] = [[] for _ in range(topology.data_parallel_size)]
    for rank in range(topology.world_size):
        copies[topology.data_parallel_rank_of(rank)].append(rank)
    return tuple(map(tuple, copies))


def epoch_of(settings: ReplaySettings, step: int, micro_batch: int = 0) -> int | None:
    """Return the epoch of a step's packs, from 1; None if epochs do not apply.

    Example: 5 packs, 2 a step, no rest taken -> steps 1 and 2 are epoch 1, step 3 is epoch 2.
    """
    size, total = settings.global_batch_size, settings.num_samples
    if settings.max_samples is not None or settings.is_evaluation:
        return None
    if settings.loader == "single":
        return 1
    if settings.loader == "batch":
        per_epoch = total // size if settings.drop_last else -(-total // size)
        return (step - 1) // max(per_epoch, 1) + 1
    unit = settings.packs_per_pass
    per_epoch = total // unit * unit
    if not settings.data_sharding or not per_epoch:
        return None
    return ((step - 1) * (size // unit * unit) + micro_batch * unit) // per_epoch + 1


def evaluated_after(evaluation: EvaluationSchedule, batch: int) -> int | None:
    """Return the step after which an evaluation batch is read; None if unknown.

    Example: every 10 steps 4 batches -> batches 1 to 4 after step 10, batch 5 after step 20.
    """
    if evaluation.num_steps is not None and batch in evaluation.final_batches():
        return evaluation.num_steps
    if not evaluation.eval_interval or evaluation.eval_iters < 1:
        return None
    num_left_out = (max(evaluation.start_eval_at_iter or 1, 1) - 1) // evaluation.eval_interval
    return (num_left_out + (batch - 1) // evaluation.eval_iters + 1) * evaluation.eval_interval


def _why_never(order: PackOrder) -> str | None:
    settings = order.settings
    if settings.is_evaluation:
        skip_text = ", or skip it because it does not fill a batch" if settings.drop_last else ""
        return f"the run's evaluations end before it{skip_text}"
    if settings.loader == "batch" and settings.num_samples % settings.global_batch_size and settings.drop_last:
        num_left_out = settings.num_samples % settings.global_batch_size
        return f"{num_left_out} of {settings.num_samples} packs do not fill a global batch; every epoch skips them"
    return "the run ends before it"


class PackTracer:
    """Some packs of a split, read once and then looked up."""

    def __init__(self, run: TracedRun, split: str, packs: Iterable[int]) -> None:
        """Read the packs of a run's artifact.

        Raises:
            ArtifactError: the split, a shard or the plan cannot be read.
            ConfigError: the pack does not exist.
        """
        numbers, artifact = set(packs), run.artifact
        self._artifact, self._release = artifact, run.release
        self._record = artifact.split(split)
        self._index = shard_index(artifact, split)
        self._rows = read_packs(artifact, split, numbers)
        self._entries = entries_of_packs(artifact, split, numbers)
        self._eos_token_id = int(artifact.manifest.tokenizer["eos_token_id"])
        self._sources = [item.source for item in self._record.inputs]
        self._sequences = {pack: self._sequences_of(pack, row) for pack, row in self._rows.items()}

    def trace(
        self, pack: int, *, is_filler: bool = False, has_sequences: bool = True, context_parallel_size: int = 1
    ) -> TracedPack:
        """Return one pack."""
        sequences = self._sequences[pack]
        place = self._index.place_of(pack)
        return TracedPack(
            pack=pack,
            shard=place.shard,
            shard_row=place.row,
            is_filler=is_filler,
            num_sequences=len(sequences),
            num_tokens=sum(sequence.runtime_length for sequence in sequences),
            num_trained_tokens=0 if is_filler else sum(sequence.num_trained_tokens for sequence in sequences),
            sequences=sequences if has_sequences else (),
            context=self.context_slices(pack, context_parallel_size) if context_parallel_size > 1 else (),
        )

    def sources_of(self, packs: Iterable[int]) -> tuple[TracedSource, ...]:
        """Return the packs' totals per source; empty if the artifact does not record sources."""
        rows: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)
        tokens: Counter[int] = Counter()
        trained_tokens: Counter[int] = Counter()
        for pack in packs:
            entries = self._entries.get(pack, ())
            for entry, sequence in zip(entries, self._sequences[pack], strict=False):
                source = self._sources[entry.file_index] if 0 <= entry.file_index < len(self._sources) else -1
                rows[source].add((entry.file_index, entry.row))
                tokens[source] += sequence.runtime_length
                trained_tokens[source] += sequence.num_trained_tokens
        return tuple(
            TracedSource(
                name=record.name,
                num_rows=len(rows[source]),
                num_tokens=tokens[source],
                num_trained_tokens=trained_tokens[source],
            )
            for source, record in enumerate(self._record.sources)
            if source in rows
        )

    def context_slices(self, pack: int, context_parallel_size: int) -> tuple[ContextSlice, ...]:
        """Return each context-parallel rank's tokens of a pack, as the host's forward step slices it.

        Raises:
            ArtifactError: the row is malformed.
            ConfigError: `context_parallel_size` is below 1.
        """
        manifest = self._artifact.manifest
        settings = CollateSettings(
            release=self._release,
            packed_sequence_size=manifest.packed_sequence_size,
            pad_seq_to_mult=manifest.pad_seq_to_mult,
            eos_token_id=self._eos_token_id,
            pad_to_max_length=True,
        )
        batch = predict_batch([self._rows[pack]], settings)
        slices = slice_row(batch, 0, context_parallel_size)
        offsets = np.asarray(batch.physical_offsets[0], dtype=np.int64)
        num_sequences = len(self._rows[pack].seq_start_id)
        return tuple(
            ContextSlice(
                context_rank=rank,
                num_tokens=slices.positions.shape[1],
                num_trained_tokens=int(slices.trained_tokens[rank]),
                ranges=token_ranges(slices.positions[rank], offsets, num_sequences),
            )
            for rank in range(context_parallel_size)
        )

    def _sequences_of(self, pack: int, row: PackedRow) -> tuple[TracedSequence, ...]:
        entries, inputs = {entry.position: entry for entry in self._entries.get(pack, ())}, self._record.inputs
        sequences = []
        bounds = seq_boundaries(row.seq_start_id.astype(np.int64), len(row.input_ids))
        for position, (start, stop) in enumerate(pairwise(bounds.tolist())):
            entry, inner = entries.get(position), slice(start, stop - 1)
            is_trained = is_learned(
                row.loss_mask[inner], row.input_ids[inner], eos_token_id=self._eos_token_id, release=self._release
            )
            sequences.append(
                TracedSequence(
                    position=position,
                    file=inputs[entry.file_index].path if entry and 0 <= entry.file_index < len(inputs) else None,
                    row=entry.row if entry else None,
                    runtime_length=entry.runtime_length if entry else max(stop - start - 1, 0),
                    num_trained_tokens=int(is_trained.sum()),
                    is_truncated=entry is not None and entry.is_truncated,
                    first_token=entry.first_token if entry else 0,
                )
            )
        return tuple(sequences)


def token_ranges(positions: IntArray, offsets: IntArray, num_sequences: int) -> tuple[TokenRange, ...]:
    """Return runs of consecutive positions, each inside one sequence.

    Positions are runtime, in a rank's order, shape [num_tokens]; offsets are those of the sequences, of which there are
    `num_sequences`, and the tail, runtime, shape [num_segments + 1].

    Example: positions [0, 1, 6, 7] of offsets [0, 4, 8] -> sequence 0 tokens 0 to 2, sequence 1 tokens 2 to 4.
    """
    segments = np.searchsorted(offsets, positions, side="right") - 1
    is_new = (np.diff(positions) != 1) | (np.diff(segments) != 0)
    cuts = [0, *(np.flatnonzero(is_new) + 1).tolist(), len(positions)]
    ranges = []
    for first, stop in pairwise(cuts):
        if first == stop:
            continue
        segment = min(int(segments[first]), num_sequences)
        begin = int(offsets[min(segment, len(offsets) - 1)])
        ranges.append(
            TokenRange(
                sequence=segment if segment < num_sequences else None,
                start=int(positions[first]) - begin,
                stop=int(positions[stop - 1]) - begin + 1,
            )
        )
    return tuple(ranges)
