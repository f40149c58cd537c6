"""A rank's observations of a step: numbers for exchange between ranks, and evidence for messages."""

from __future__ import annotations

import hashlib
import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bridgepack.geometry import IntArray
from bridgepack.records.guarded import RankEvidence, RankFacts, RankPlace
from bridgepack.running.guard.watch import NOT_SEEN, Call, StepWatch

#: Maximum offsets, modules and micro batches that evidence names.
_MAX_OFFSETS, _MAX_PARTS, _MAX_MICRO_BATCHES = 24, 3, 64
_DIGEST_BITS = 62


@dataclass(frozen=True, kw_only=True, slots=True)
class Boundaries:
    """Sequence boundaries of one micro batch; repeated last offsets are removed."""

    physical: tuple[int, ...]  #: runtime offsets with alignment padding
    logical: tuple[int, ...]  #: runtime offsets without alignment padding

    @classmethod
    def from_offsets(cls, physical: IntArray, logical: IntArray) -> Boundaries:
        """Return the boundaries from two arrays of offsets.

        Example: [0 5 8 16 16] and [0 4 7 7 7] -> [0 5 8 16] and [0 4 7].
        """
        return cls(physical=_trim(physical), logical=_trim(logical))

    def describe(self) -> str:
        """Return the boundaries in words, shortened if there are many."""
        text = f"{len(self.physical) - 1} sequences, cu_seqlens {_offsets_text(self.physical)}"
        return text if self.logical == self.physical else f"{text}, without padding {_offsets_text(self.logical)}"


def digest_of(batches: Sequence[Boundaries]) -> int:
    """Return a hash of the boundaries of micro batches in order; never 0."""
    text = ";".join(f"{batch.physical}{batch.logical}" for batch in batches)
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % 2**_DIGEST_BITS
    return number or 1


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedStep:
    """What a data-parallel replica should compute in a step."""

    packs: tuple[str, ...]  #: packs of each micro batch, in words
    boundaries: tuple[Boundaries, ...]  #: boundaries of each micro batch
    trained: tuple[int, ...]  #: trained tokens of each micro batch
    labels: int  #: sum of the labels of all trained tokens


def rank_facts(watch: StepWatch, *, place: RankPlace, num_micro_batches: int, plan: PlannedStep | None) -> RankFacts:
    """Return a rank's observations of a step, with evidence; this synchronises with the device.

    If the host computed the micro batches more than once, the last time counts. `plan` is the expected step; None if
    this rank does not know it.
    """
    chunks = [
        [call for call in watch.calls if call.chunk == chunk][-num_micro_batches:] for chunk in range(watch.num_chunks)
    ]
    calls = [call for chunk in chunks for call in chunk]
    boundaries = [_boundaries_of_chunk(chunk, watch.stray_params[index]) for index, chunk in enumerate(chunks)]
    strays = [name for names in watch.stray_without for name in names]
    num_without = sum(_is_without(call) for call in calls)
    losses = [loss for call in calls if (loss := _loss_of(call)) is not None]
    labels = [loss.label_sum for loss in losses]
    facts = RankFacts(
        place=place,
        num_calls=len(calls),
        num_without=max(num_without, len(calls)) if strays else num_without,
        boundaries=_digest_of_chunks(boundaries),
        trained_tokens=sum(loss.num_tokens for loss in losses) if losses else -1,
        trained_labels=sum(labels) if labels and min(labels) >= 0 else -1,
        num_not_finite=sum(not math.isfinite(loss.value) for loss in losses),
        evidence=_evidence(calls, boundaries, strays, losses),
    )
    return facts if plan is None else _with_plan(facts, plan)


def facts_without_reading(watch: StepWatch, *, place: RankPlace) -> RankFacts:
    """Return the observations of a step so far that need no tensor to be read."""
    return RankFacts(
        place=place,
        num_calls=len(watch.calls),
        num_without=sum(_is_without(call) for call in watch.calls),
        evidence=_evidence(watch.calls, [], [], []),
    )


def _with_plan(facts: RankFacts, plan: PlannedStep) -> RankFacts:
    evidence = replace(
        facts.details,
        packs=plan.packs[:_MAX_MICRO_BATCHES],
        planned_boundaries=tuple(item.describe() for item in plan.boundaries[:_MAX_MICRO_BATCHES]),
        planned=plan.trained[:_MAX_MICRO_BATCHES],
    )
    return replace(
        facts,
        planned_boundaries=digest_of(plan.boundaries),
        planned_tokens=sum(plan.trained),
        planned_labels=plan.labels,
        evidence=evidence,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Loss:
    value: float
    num_tokens: int
    label_sum: int


def _loss_of(call: Call) -> _Loss | None:
    """Return loss and tokens from a loss function's (loss, tokens, report) or (loss, report); None if not called.

    Source: megatron/bridge/training/losses.py (masked_next_token_loss).
    """
    result = call.loss
    if not isinstance(result, tuple) or not 2 <= len(result) <= 3:
        return None
    num_tokens = int(result[1]) if len(result) == 3 else _reported_tokens(result[1])
    return _Loss(value=float(result[0]), num_tokens=num_tokens, label_sum=_label_sum(call, num_tokens))


def _reported_tokens(report: Any) -> int:
    first = next(iter(report.values()), None) if isinstance(report, dict) else None
    return int(first.flatten()[1]) if first is not None and getattr(first, "numel", lambda: 0)() == 2 else 0


def _label_sum(call: Call, num_tokens: int) -> int:
    """Return the sum of the trained labels; -1 if the mask is not the one that the loss used."""
    labels, mask = call.labels, call.loss_mask
    if labels is None or mask is None or labels.numel() != mask.numel():
        return -1
    is_trained = mask.reshape(-1) > 0
    if int(is_trained.sum()) != num_tokens:
        return -1
    return int(labels.reshape(-1)[is_trained].sum())


def _is_without(call: Call) -> bool:
    return call.params is None or bool(call.layers_without)


def _boundaries_of_chunk(calls: Sequence[Call], stray_params: Sequence[Any]) -> list[Boundaries]:
    """Return the boundaries of each micro batch that layers received, else those of the chunk; empty if any is missing.

    If layers of one micro batch received different boundaries, all are listed, so that the digest differs.
    """
    boundaries: list[Boundaries] = []
    if calls and all(call.params is NOT_SEEN and not call.layer_params for call in calls):
        of_params = [boundaries_of_params(params) for params in stray_params]
        return [item for item in of_params if item is not None] if None not in of_params else []
    for call in calls:
        params_of_call = call.layer_params or [call.params]
        of_params = [boundaries_of_params(params) for params in params_of_call]
        if None in of_params or _is_without(call):
            return []
        boundaries += dict.fromkeys(item for item in of_params if item is not None)
    return boundaries


def boundaries_of_params(params: Any) -> Boundaries | None:
    """Return the boundaries of a PackedSeqParams.

    None if there are none, or if each rank has its own part, as with dynamic context parallelism.
    """
    logical = getattr(params, "cu_seqlens_q", None)
    if logical is None or getattr(params, "local_cp_size", None) is not None:
        return None
    physical = getattr(params, "cu_seqlens_q_padded", None)
    logical_offsets = _on_host(logical)
    return Boundaries.from_offsets(logical_offsets if physical is None else _on_host(physical), logical_offsets)


def _on_host(offsets: Any) -> IntArray:
    return np.asarray(offsets.detach().cpu(), dtype=np.int64).reshape(-1)


def _digest_of_chunks(chunks: Sequence[Sequence[Boundaries]]) -> int:
    """Return a rank's digest: of the boundaries that all its chunks agree on, or of all if they differ."""
    chunks_with_boundaries = [chunk for chunk in chunks if chunk]
    if not chunks_with_boundaries or len(chunks_with_boundaries) < len(chunks):
        return 0
    different = {digest_of(chunk): chunk for chunk in chunks_with_boundaries}
    return (
        next(iter(different))
        if len(different) == 1
        else digest_of([item for chunk in chunks_with_boundaries for item in chunk])
    )


def _evidence(
    calls: Sequence[Call], boundaries: Sequence[Sequence[Boundaries]], strays: Sequence[str], losses: Sequence[_Loss]
) -> RankEvidence:
    without: list[str] = []
    for call in calls:
        without += [f"model chunk {call.chunk}"] if call.params is None else []
        without += call.layers_without
    parts = dict.fromkeys([*without, *strays])
    more = [f"and {len(parts) - _MAX_PARTS} more"] if len(parts) > _MAX_PARTS else []
    read = [call.loader_gave_boundaries for call in calls if call.loader_gave_boundaries is not None]
    return RankEvidence(
        host=platform.node(),
        from_loader=f"boundaries in {sum(read)} of {len(read)} batches" if read else "no batch",
        without=(*list(parts)[:_MAX_PARTS], *more),
        boundaries=tuple(item.describe() for item in (boundaries[0] if boundaries else [])[:_MAX_MICRO_BATCHES]),
        trained=tuple(loss.num_tokens for loss in losses[:_MAX_MICRO_BATCHES]),
        losses=tuple(f"{loss.value / max(loss.num_tokens, 1):.6g}" for loss in losses[:_MAX_MICRO_BATCHES]),
    )


def _trim(offsets: IntArray) -> tuple[int, ...]:
    if not len(offsets):
        return ()
    return tuple(int(value) for value in offsets[: int(np.argmax(offsets == offsets[-1])) + 1])


def _offsets_text(offsets: Sequence[int]) -> str:
    text = ", ".join(str(value) for value in offsets[:_MAX_OFFSETS])
    return f"[{text}{', ...' if len(offsets) > _MAX_OFFSETS else ''}]"
