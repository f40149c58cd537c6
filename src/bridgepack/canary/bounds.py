"""Bound on the difference of two runs of the same sums in floating-point arithmetic, derived from the sums.

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
from dataclasses import dataclass
from typing import Any

from bridgepack.canary.records import Bound, Precision

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
    hidden, head = int(model["hidden_size"]), int(model["kv_channels"])
    heads, groups = int(model["num_attention_heads"]), int(model["num_query_groups"])
    inner = max(int(model[name]) for name in model if name.endswith("ffn_hidden_size"))
    inner *= int(model.get("moe_router_topk", 1))
    forward = 4 * hidden + inner + heads * head + 2 * head + 2 * longest
    backward = 4 * hidden + 2 * inner + (heads + 2 * groups) * head + head + 3 * longest
    per_layer = forward + backward + _POINTWISE
    return int(model["num_layers"]) * per_layer + 2 * (hidden + sizes.vocab_size) + sizes.num_tokens


def bound_for(precision: Precision, sizes: Sizes) -> Bound:
    """Return the bound on the difference of two runs.

    Example: a chain of 10,000 roundings in float32 -> 2 * 8 * 100 * 6e-8 = 9.5e-5.
    """
    unit = _UNIT_ROUNDOFF[precision]
    if precision == "bfloat16":
        length, factor = int(sizes.model["num_layers"]) * _STORED_PER_LAYER, _LAMBDA_STORED
    else:
        length, factor = chain_length(sizes), _LAMBDA
    derived = 2 * factor * math.sqrt(length) * unit
    because = f"2 x {factor:.0f} x sqrt({length:,} roundings) x {unit:.1e}"
    if precision == "float64":
        return Bound(
            precision=precision,
            relative=max(FLOAT64_BOUND, derived),
            chain_length=length,
            because=f"fixed; rounding alone stays below {because} = {derived:.0e}",
        )
    return Bound(precision=precision, relative=derived, chain_length=length, because=because)
