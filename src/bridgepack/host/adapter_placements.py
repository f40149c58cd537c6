"""Where the host's adapters compute what one rank would, of layers that ranks split: a table made by running them.

A place is the kind of layer with the sizes that matter beside it: `copied, tensor 2, sequence parallel`. Its four
numbers are the largest differences from the formula B A x on one rank, as shares of the largest true value: of the
output, of the gradient of the tokens, and of the gradients of A (`linear_in`) and B (`linear_out`). A contract test
runs every place on gloo ranks on CPU and compares; tests/support/adapter_placements.py says what stands in there for
kernels. `adapter_placements.json` has a table for each release.

What an adapter gets and owes is what its layer gets and owes:

- `column`: tokens, a rank's own under sequence parallelism -> the rank's features.
- `row`: the rank's features -> sums, of the rank's own tokens under sequence parallelism.
- `copied`: tokens -> all features of the same tokens; every rank has the whole weight.
- `shared_column`, `shared_row`: of shared experts whose communication is overlapped, which adds the ranks' parts later.
- `expert_column`, `expert_row`: of routed experts; the dispatcher adds the ranks' parts later.

Source: megatron-bridge 0.6.2, peft/utils.py (ParallelLinearAdapter, GroupedExpertLinearAdapter); megatron-core 0.19.2,
tensor_parallel/layers.py, transformer/moe/shared_experts.py:95-104, transformer/moe/token_dispatcher.py.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from bridgepack.host.modules import SPLITS_INPUTS, Linear
from bridgepack.host.release import HostRelease

type Kind = Literal["column", "row", "copied", "shared_column", "shared_row", "expert_column", "expert_row"]
#: Adapters of routed experts: one for all that a rank computes together, one for each of these, or one for each expert
#: that is a layer of its own (SequentialMLP).
type ExpertAdapters = Literal["shared", "each", "sequential"]
TABLE = Path(__file__).with_suffix(".json")
#: Differences that arithmetic in single precision leaves.
_TOLERANCE = 1e-3
_LATENT_PROJECTIONS = frozenset({"fc1_latent_proj", "fc2_latent_proj"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """A kind of layer, and over how many ranks of each kind it is split."""

    kind: Kind
    tensor: int = 1  #: tensor_model_parallel_size
    expert: int = 1  #: expert_model_parallel_size
    expert_tensor: int = 1  #: expert_tensor_parallel_size
    is_sequence_parallel: bool = False
    is_fused: bool = False  #: gradient_accumulation_fusion
    experts: ExpertAdapters = "shared"

    @property
    def place(self) -> str:
        """The place in the table; empty where no rank shares the layer with another."""
        if not self.kind.startswith("expert"):
            if self.tensor == 1:
                return ""
            return f"{self.kind}, tensor 2{', sequence parallel' if self.is_sequence_parallel else ''}"
        if self.expert_tensor > 1:
            return f"{self.kind}, {self.experts}, expert tensor 2"
        if self.expert == 1:
            return ""
        is_fused = self.is_fused and self.experts != "each"  # these weights have no such kernel
        return f"{self.kind}, {self.experts}, expert 2{', fused' if is_fused else ''}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Differences:
    """How far an adapter is from the formula, as shares of the largest true value."""

    output: float = 0.0
    tokens: float = 0.0  #: the gradient of the tokens
    linear_in: float = 0.0  #: the gradient of A
    linear_out: float = 0.0  #: the gradient of B

    @property
    def names(self) -> tuple[str, ...]:
        """What is wrong, in words."""
        values = (self.output, self.tokens, self.linear_in, self.linear_out)
        words = ("output", "gradient of its input", "gradient of linear_in", "gradient of linear_out")
        return tuple(word for word, value in zip(words, values, strict=True) if value > _TOLERANCE)


def differences_of(placement: Placement, release: HostRelease) -> Differences:
    """Return what the release's table says of a placement."""
    return Differences(**_tables()[release.name].get(placement.place, {}))


def kind_of(linear: Linear, *, overlaps_shared_experts: bool) -> Kind:
    """Return the kind of a linear layer."""
    splits_inputs = linear.name in SPLITS_INPUTS
    if linear.name == "router" or linear.name.endswith("down_proj") or linear.name in _LATENT_PROJECTIONS:
        return "copied"
    if ".experts." in linear.path:
        return "expert_row" if splits_inputs else "expert_column"
    if ".shared_experts." in linear.path and overlaps_shared_experts:
        return "shared_row" if splits_inputs else "shared_column"
    return "row" if splits_inputs else "column"


@cache
def _tables() -> Mapping[str, Mapping[str, Any]]:
    tables: Mapping[str, Mapping[str, Any]] = json.loads(TABLE.read_text(encoding="utf-8"))
    return tables
