"""Names the faults of a step by comparing each rank's inputs with the expected inputs."""

from collections.abc import Iterator, Mapping

import numpy as np

from bridgepack.canaries import faults
from bridgepack.canaries.inputs import PackedInput, multiple_for
from bridgepack.canaries.packs import lengths_of
from bridgepack.canaries.records import CanaryFinding, IntArray, RunOutcome, SeenBatch, SeenRank
from bridgepack.geometry import first_difference
from bridgepack.replay.collate import predict_batch
from bridgepack.replay.slicing import RankSlices, slice_row

TOKENS_DIFFER = "tokens-differ"
UNKNOWN = "cause-unknown"
LEAK_IN_ATTENTION = "attention-crosses-boundaries"
ADAPTERS_WITHOUT_GRADIENT = "adapters-without-gradient"

#: Name -> the rules that cover it, and what to do.
ADVICE: Mapping[str, tuple[tuple[str, ...], str]] = {
    faults.BOUNDARIES_DROPPED: (
        ("BP802", "BP890"),
        "Use megatron-bridge 0.6.2, whose get_batch gives every stage the boundaries, and no forward step of your own.",
    ),
    faults.MASK_SHIFTED: (("BP309",), "Build the artifact again, and let nothing change batches after the loader."),
    faults.POSITIONS_NOT_RESET: (("BP713",), "Let nothing change position_ids after the loader."),
    faults.WRONG_MULTIPLE: (
        ("BP331",),
        "Build or repack it for this topology, so that every length is a multiple of {multiple}.",
    ),
    faults.LOSS_PER_RANK: (
        ("BP011", "BP014"),
        "Set bridge_overrides.model.calculate_per_token_loss to true, or leave it out.",
    ),
    faults.MAX_SEQLEN_TOO_SMALL: (("BP406", "BP407"), "Build the artifact again, so that its metadata is its own."),
    faults.SEQUENCE_LEAKS: (("BP892",), "Let nothing change cu_seqlens after the loader."),
    faults.CONTIGUOUS_SLICES: (
        (),
        "Let ranks take two chunks of every sequence each, as megatron-core's get_thd_batch_on_this_cp_rank does.",
    ),
    faults.LOSS_NORMALISED: (
        ("BP893",),
        "Use megatron-bridge's own masked_next_token_loss, or return the trained tokens as its second value.",
    ),
    ADAPTERS_WITHOUT_GRADIENT: (
        ("BP897",),
        "Train a module before the recomputed ones (linear_qkv), or do not recompute modules with adapters.",
    ),
    TOKENS_DIFFER: ((), "Let nothing change batches after the loader."),
    LEAK_IN_ATTENTION: ((), "Use an attention kernel that takes packs."),
    UNKNOWN: ((), "Run again with --json for every parameter, and compare layouts to see where it begins."),
}


def named_faults(outcome: RunOutcome, packs: PackedInput) -> list[CanaryFinding]:
    """Return the findings on a step from the inputs of its ranks, each name once."""
    messages: dict[str, str] = {}
    multiple = multiple_for(packs.topology)
    for name, message in _faults(outcome, packs, multiple):
        messages.setdefault(name, message)
    return [finding(name, packs.topology.title, message, multiple=multiple) for name, message in messages.items()]


def finding(name: str, layout: str, message: str, *, multiple: int = 1) -> CanaryFinding:
    """Return a finding with its fix."""
    rules, advice = ADVICE[name]
    return CanaryFinding(
        name=name, layout=layout, message=message, advice=advice.format(multiple=multiple), rules=rules
    )


def _faults(outcome: RunOutcome, packs: PackedInput, multiple: int) -> Iterator[tuple[str, str]]:
    misfit = _misfit(packs, multiple)
    if misfit:
        yield faults.WRONG_MULTIPLE, misfit
    counts = [int(predict_batch([row], packs.settings).loss_mask.sum()) for row in packs.intended]
    if any(not rank.calculate_per_token_loss for rank in outcome.ranks) and len(set(counts)) > 1:
        yield (
            faults.LOSS_PER_RANK,
            f"the loss is averaged per micro batch instead of per token, and packs train {min(counts):,} to "
            f"{max(counts):,} tokens",
        )
    for rank in outcome.ranks:
        if not rank.batches:
            continue
        right_batch = predict_batch([packs.intended[row] for row in rank.rows], packs.settings)
        row_batch = predict_batch([packs.rows[row] for row in rank.rows], packs.settings)
        for index, batch in enumerate(rank.batches):
            row_offsets, right = (
                _distinct(row_batch.physical_offsets[index]),
                _distinct(right_batch.physical_offsets[index]),
            )
            yield from _boundary_faults(batch, row_offsets, right, packs, rank)
            if not misfit:
                slices = slice_row(right_batch, index, packs.topology.context_parallel_size)
                if _is_contiguous(batch, right_batch.tokens[index], slices, rank):
                    yield faults.CONTIGUOUS_SLICES, _contiguous_text(batch, rank, packs)
                else:
                    yield from _value_faults(batch, slices, rank, packs)


def _is_contiguous(batch: SeenBatch, row: IntArray, slices: RankSlices, rank: SeenRank) -> bool:
    """Return whether a context rank got an equal part of the row, tokens in their order, in place of its own chunks."""
    if batch.tokens is None or np.array_equal(batch.tokens, slices.tokens[rank.context]):
        return False
    first = rank.context * len(batch.tokens)
    return np.array_equal(batch.tokens, row[first : first + len(batch.tokens)])


def _contiguous_text(batch: SeenBatch, rank: SeenRank, packs: PackedInput) -> str:
    return (
        f"pack {packs.numbers[batch.row]}: context rank {rank.context} has part {rank.context + 1} of "
        f"{packs.topology.context_parallel_size} of the pack, in place of two chunks of every sequence: attention "
        "takes its tokens for those of other positions"
    )


def _misfit(packs: PackedInput, multiple: int) -> str | None:
    """Return text on the first sequence whose length does not fit the layout, or None if all fit."""
    for pack, row in enumerate(packs.rows):
        lengths = lengths_of(row)
        wrong = np.flatnonzero(lengths % multiple)
        if len(wrong):
            multiple_text = (
                f"2 x CP = {multiple}" if multiple == 2 * packs.topology.context_parallel_size else f"{multiple}"
            )
            length, place = lengths[wrong[0]], f"sequence {wrong[0]} of pack {packs.numbers[pack]}"
            return (
                f"the length {length} of {place} is not a multiple of {multiple_text}, so ranks cannot share it evenly"
            )
    return None


def _boundary_faults(
    batch: SeenBatch, row_offsets: IntArray, right: IntArray, packs: PackedInput, rank: SeenRank
) -> Iterator[tuple[str, str]]:
    place = f"pack {packs.numbers[batch.row]}"
    if batch.offsets is None:
        if batch.was_called:
            stage = f"pipeline stage {rank.pipeline + 1} of {packs.topology.pipeline_model_parallel_size}"
            yield (
                faults.BOUNDARIES_DROPPED,
                f"{stage} got no boundaries of {place}, so its sequences attend to all before",
            )
        return
    offsets = _distinct(batch.offsets)
    missing = np.setdiff1d(row_offsets, offsets)
    if len(missing):
        sequence = int(np.searchsorted(row_offsets, missing[0]))
        yield (
            faults.SEQUENCE_LEAKS,
            f"{place}: the boundary at token {missing[0]} is missing, so sequence {sequence} attends to sequence "
            f"{sequence - 1}",
        )
    elif not np.array_equal(offsets, right) and np.array_equal(row_offsets, right):
        yield faults.SEQUENCE_LEAKS, f"{place}: boundaries are {_few(offsets)}, and should be {_few(right)}"
    longest = int(np.diff(row_offsets).max())
    if batch.max_seqlen is not None and batch.max_seqlen < longest:
        yield (
            faults.MAX_SEQLEN_TOO_SMALL,
            f"{place}: max_seqlen {batch.max_seqlen} is below the longest sequence, {longest} tokens, whose end no "
            "kernel computes",
        )


def _value_faults(
    batch: SeenBatch, slices: RankSlices, rank: SeenRank, packs: PackedInput
) -> Iterator[tuple[str, str]]:
    place, context = f"pack {packs.numbers[batch.row]}", rank.context
    for kind, values, right in (
        ("tokens", batch.tokens, slices.tokens[context]),
        ("labels", batch.labels, slices.labels[context]),
    ):
        if values is not None and (at := first_difference(values, right)) is not None:
            yield TOKENS_DIFFER, f"{place}: {kind} are not those of the artifact, first at token {at}"
    values, right = batch.position_ids, slices.position_ids[context]
    if values is not None and (at := first_difference(values, right)) is not None:
        row_position = int(slices.positions[context][at]) if at < slices.positions.shape[1] else at
        yield (
            faults.POSITIONS_NOT_RESET,
            f"{place}: positions are not reset at token {row_position}: {_at(values, at)} in place of {_at(right, at)}",
        )
    values, right = batch.loss_mask, slices.loss_mask[context]
    if values is not None and (at := first_difference(values, right)) is not None:
        shift = next((shift for shift in (1, -1, 2, -2) if np.array_equal(values, np.roll(right, shift))), None)
        how = f"not that of the artifact, first at token {at}"
        if shift is not None:
            how = f"shifted {'right' if shift > 0 else 'left'} by {abs(shift)}"
        yield faults.MASK_SHIFTED, f"{place}: the loss mask is {how}"


def _distinct(offsets: IntArray) -> IntArray:
    """Return offsets without the repeated ones that pad the array."""
    distinct: IntArray = np.unique(offsets.astype(np.int64))
    return distinct


def _at(values: IntArray, index: int) -> int | None:
    return int(values[index]) if index < len(values) else None


def _few(values: IntArray) -> str:
    return f"{values[:6].tolist()}{' ...' if len(values) > 6 else ''}"
