"""Merges the ranks of a step, and measures its distance from the unpacked step.

Each rounding multiplies a result by 1 + d with |d| <= u, the unit roundoff: 2^-24 in float32, 2^-53 in float64, 2^-8 in
bfloat16. A result at the end of a chain of n roundings is off by a factor within exp(b_n), where

    b_n = lambda * sqrt(n) * u

with a probability of at least 1 - 2 exp(-lambda^2 / 2) a chain; lambda is 8, which fails once in 4e13 chains. Source:
Higham and Mary, "A New Approach to Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 41 (2019), theorem 2.4.
(The bound that holds without a probability, n * u, is some hundred times wider and would let a leak through.)

n counts the longest chain from a weight to a number of its gradient: every inner dimension of a matrix product, every
sum of a softmax and of a norm, forward and backward, of every layer, then the sum over all tokens. Two runs are both
off, so they may be 2 b_n apart. Relative to what: a gradient is a sum over sequences, and terms cancel; errors do not.
So the measure is the sum of the norms of each sequence's own gradient, which the unpacked run finds, divided by the
trained tokens as the host divides. The loss is a sum of positive terms, and is its own measure.

In bfloat16 the kernels add in float32 and round what they store, so n counts stored tensors; lambda is 2.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bridgepack.canaries.inputs import PackedInput, merge_parts
from bridgepack.canaries.records import (
    ADAPTER_SIZE,
    Bound,
    FloatArray,
    Precision,
    RunOutcome,
    topology_of,
)
from bridgepack.replay.collate import predict_batch
from bridgepack.replay.settings import Topology
from bridgepack.replay.slicing import slice_row

_UNIT_ROUNDOFF: Mapping[Precision, float] = {"float32": 2.0**-24, "float64": 2.0**-53, "bfloat16": 2.0**-8}
_LAMBDA = 8.0
_LAMBDA_STORED = 2.0
#: Bound in float64 for any chain; wider than the chain's own bound.
FLOAT64_BOUND = 1e-10
#: Roundings of an activation, a residual, a rotation and a scale, forward and backward.
_POINTWISE = 40
#: Tensors that a layer stores, forward and backward.
_STORED_PER_LAYER = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """The sizes that the length of a chain depends on."""

    model: Mapping[str, Any]  #: sizes of the model, under the host's names
    vocab_size: int  #: of the output layer
    longest_sequence: int  #: runtime tokens that one token attends to at most
    num_tokens: int  #: runtime tokens over all packs


def chain_length(sizes: Sizes) -> int:
    """Return the roundings of the longest chain from a weight to its gradient.

    Forward, a layer's chain has: two norms and the inner dimensions of its four matrix products, a head's scores, a
    softmax over the sequence and the sum over its values. Backward, each product sums over its outputs instead, and the
    softmax sums twice more. The output layer sums over the hidden size and the vocabulary, each twice; at last comes
    the sum over all tokens.
    """
    model, longest = sizes.model, sizes.longest_sequence
    hidden_size, head = int(model["hidden_size"]), int(model["kv_channels"])
    heads, groups = int(model["num_attention_heads"]), int(model["num_query_groups"])
    inner = max(int(model[name]) for name in model if name.endswith("ffn_hidden_size"))
    inner *= int(model.get("moe_router_topk", 1))
    inner += int(model.get(ADAPTER_SIZE, 0))
    forward = 4 * hidden_size + inner + heads * head + 2 * head + 2 * longest
    backward = 4 * hidden_size + 2 * inner + (heads + 2 * groups) * head + head + 3 * longest
    per_layer = forward + backward + _POINTWISE
    return int(model["num_layers"]) * per_layer + 2 * (hidden_size + sizes.vocab_size) + sizes.num_tokens


def bound_for(precision: Precision, sizes: Sizes) -> Bound:
    """Return the bound on the difference of two runs.

    Example: a chain of 10,000 roundings in float32 -> 2 * 8 * 100 * 6e-8 = 9.5e-5.
    """
    unit = _UNIT_ROUNDOFF[precision]
    if precision == "bfloat16":
        length, factor = int(sizes.model["num_layers"]) * _STORED_PER_LAYER, _LAMBDA_STORED
    else:
        length, factor = chain_length(sizes), _LAMBDA
    relative = 2 * factor * math.sqrt(length) * unit
    because = f"2 x {factor:.0f} x sqrt({length:,} roundings) x {unit:.1e}"
    if precision == "float64":
        return Bound(
            precision=precision,
            relative=max(FLOAT64_BOUND, relative),
            chain_length=length,
            because=f"fixed; rounding alone stays below {because} = {relative:.0e}",
        )
    return Bound(precision=precision, relative=relative, chain_length=length, because=because)


Losses = Mapping[tuple[int, int], float]

#: A measure that nothing is divided by less than.
TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, kw_only=True, slots=True)
class WholeStep:
    """A step merged over all its ranks."""

    loss: float  #: sum over trained tokens
    num_trained: int  #: trained tokens
    gradients: Mapping[str, FloatArray]  #: parameter of the whole model -> its gradient
    copies: Mapping[str, float]  #: parameter -> largest distance between the copies that ranks have of it, as a norm
    magnitudes: Mapping[str, float]  #: parameter -> measure of its gradient, of unpacked steps
    losses: Losses = field(default_factory=dict)  #: (pack of the batch, sequence) -> loss
    router_margin: float | None = None  #: how clearly experts were chosen, of unpacked steps; None without experts


@dataclass(frozen=True, kw_only=True, slots=True)
class Distance:
    """The distance of a step from the reference."""

    loss: float  #: relative to the reference
    num_trained: int  #: difference in trained tokens
    gradients: Mapping[str, float]  #: parameter -> relative to its measure, the largest first
    copies: Mapping[str, float]  #: parameter -> distance between copies, relative to its measure, the largest first
    sequences: Losses  #: (pack of the batch, sequence) -> relative distance of its loss, in order

    @property
    def sequence(self) -> tuple[int, int, float] | None:
        """The first sequence with the largest difference in loss: its place and distance; None if no loss is known."""
        place = max(self.sequences, key=lambda place: number_of(self.sequences[place]), default=None)
        return None if place is None else (*place, self.sequences[place])

    @property
    def largest_gradient(self) -> float:
        """The largest relative distance of a gradient or of its copies; infinite if one is NaN."""
        return max(map(number_of, (*self.gradients.values(), *self.copies.values())), default=0.0)

    def is_within(self, bound: float) -> bool:
        """Return whether all distances are within a bound."""
        sequence = self.sequence[2] if self.sequence is not None else 0.0
        return self.num_trained == 0 and max(number_of(self.loss), self.largest_gradient, number_of(sequence)) <= bound


def whole_step(outcome: RunOutcome, topology: Topology, losses: Losses) -> WholeStep:
    """Return a step merged over all its ranks, with its losses by (pack, sequence)."""
    last = [
        rank
        for rank in outcome.ranks
        if rank.pipeline == topology.pipeline_model_parallel_size - 1 and rank.tensor == 0
    ]
    gradients: dict[str, FloatArray] = {}
    copies: dict[str, float] = {}
    for name in sorted({name for rank in outcome.ranks for name in rank.gradients}):
        gradients[name], copies[name] = _merged_gradient(name, outcome)
    return WholeStep(
        loss=sum(rank.loss for rank in last),
        num_trained=sum(rank.num_trained for rank in last),
        gradients=gradients,
        copies=copies,
        magnitudes={name: size for rank in outcome.ranks for name, size in rank.magnitudes.items()},
        losses=losses,
        router_margin=outcome.ranks[0].router_margin,
    )


def distance(step: WholeStep, reference: WholeStep) -> Distance:
    """Return the distance of a packed step from the unpacked step."""
    num_trained = max(reference.num_trained, 1)
    measures = {name: max(size / num_trained, TINY) for name, size in reference.magnitudes.items()}
    missing = reference.gradients.keys() ^ step.gradients.keys()
    assert not missing, f"parameters of one run only: {sorted(missing)}"
    far = {
        name: float(np.linalg.norm(step.gradients[name] - gradient)) / measures[name]
        for name, gradient in reference.gradients.items()
    }
    copies = {name: size / measures[name] for name, size in step.copies.items() if size}
    return Distance(
        loss=abs(step.loss - reference.loss) / max(abs(reference.loss), TINY),
        num_trained=step.num_trained - reference.num_trained,
        gradients=_by_size(far),
        copies=_by_size(copies),
        sequences={
            place: abs(step.losses[place] - reference_loss) / max(abs(reference_loss), TINY)
            for place, reference_loss in sorted(reference.losses.items())
            if place in step.losses
        },
    )


def unpacked_step(outcome: RunOutcome, num_sequences: list[int]) -> WholeStep:
    """Return a complete step of one rank over sequences one by one; `num_sequences` is that of each pack."""
    places = [(pack, index) for pack, count in enumerate(num_sequences) for index in range(count)]
    losses = {
        places[batch.row]: float((batch.losses * batch.loss_mask).sum())
        for rank in outcome.ranks
        for batch in rank.batches
        if batch.losses is not None and batch.loss_mask is not None
    }
    return whole_step(outcome, topology_of(), losses)


def packed_step(outcome: RunOutcome, packs: PackedInput) -> WholeStep:
    """Return a complete step over packs."""
    losses: dict[tuple[int, int], float] = {}
    for rank in outcome.ranks:
        if rank.tensor or rank.pipeline != packs.topology.pipeline_model_parallel_size - 1:
            continue
        prediction = predict_batch([packs.rows[row] for row in rank.rows], packs.settings)
        for index, batch in enumerate(rank.batches):
            if batch.losses is None or batch.loss_mask is None:
                continue
            positions = slice_row(prediction, index, packs.topology.context_parallel_size).positions[rank.context]
            offsets = prediction.physical_offsets[index]
            sequences = np.searchsorted(offsets, positions, side="right") - 1
            for sequence in range(len(packs.rows[batch.row].seq_start_id)):
                loss = float((batch.losses * batch.loss_mask)[sequences == sequence].sum())
                losses[batch.row, sequence] = losses.get((batch.row, sequence), 0.0) + loss
    return whole_step(outcome, packs.topology, losses)


def _merged_gradient(name: str, outcome: RunOutcome) -> tuple[FloatArray, float]:
    """Return a whole gradient, and the largest distance between copies of a part of it."""
    dimension, num_blocks = next(rank.cuts[name] for rank in outcome.ranks if name in rank.cuts)
    parts: dict[int, FloatArray] = {}
    furthest = 0.0
    for rank in outcome.ranks:
        if name not in rank.gradients:
            continue
        key = rank.tensor if dimension >= 0 else 0
        first = parts.setdefault(key, rank.gradients[name])
        furthest = max(furthest, float(np.linalg.norm(first - rank.gradients[name])))
    return merge_parts([parts[key] for key in sorted(parts)], dimension, num_blocks), furthest


def _by_size(values: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(values.items(), key=lambda item: (-number_of(item[1]), item[0])))


def number_of(value: float) -> float:
    """Return the value, or infinity if it is NaN, so that NaN never counts as small."""
    return value if value == value else float("inf")
