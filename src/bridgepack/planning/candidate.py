"""A pack size and a layout for a recipe, with what they are estimated to take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bridgepack.planning.estimate import Waiting
from bridgepack.planning.layout import Layout, Memory


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A pack size and layout for a recipe; seconds, tokens per second and memory are estimates."""

    packed_sequence_size: int  #: runtime tokens of a pack
    layout: Layout  #: layout over the GPUs
    global_batch_size: int  #: packs per step; a forward pass takes one
    num_packs: int  #: packs of the run's data
    fill_fraction: float  #: as of `PackedLengths`
    padding_fraction: float  #: as of `PackedLengths`
    over_long_fraction: float  #: as of `PackedLengths`
    lost_fraction: float  #: as of `PackedLengths`
    waiting: Waiting  #: of ranks for each other
    balance: str  #: `packing.balance.kind` of the estimate
    memory: Memory  #: memory of the fullest GPU
    step_s: float  #: seconds of an optimiser step
    #: runtime tokens without padding, and without those that sequences show again, per second and GPU
    tokens_per_s: float
    parts: Mapping[str, float]  #: shares of a step's time (0-1): matrices, attention, exchange, pipeline, waiting
    changes: Mapping[str, Any] = field(repr=False)  #: dotted path of the recipe -> value
    added_fraction: float = 0.0  #: as of `PackedLengths`

    @property
    def is_short(self) -> bool:
        """Whether the data has fewer packs than a step, so that training cannot start."""
        return self.num_packs < self.global_batch_size

    def loses(self, best: Candidate) -> str:
        """Return text on how much slower it is than the best candidate, and why."""
        share = self.tokens_per_s / best.tokens_per_s - 1
        grown = {
            name: part / self.tokens_per_s - best.parts[name] / best.tokens_per_s for name, part in self.parts.items()
        }
        worst = max(grown, key=lambda name: grown[name])
        lost_tokens = f"loses {self.lost_fraction:.1%} of the tokens" if self.lost_fraction > best.lost_fraction else ""
        short = "fewer packs than the global batch" if self.is_short and not best.is_short else ""
        slower = f"{-share:.0%} slower: {worst}" if share < 0 else ""
        return ", ".join(filter(None, (slower, lost_tokens, short))) or "as fast"
