"""What the canary reports."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from bridgepack.canary.bounds import Bound
from bridgepack.canary.naming import CanaryFinding
from bridgepack.records.results import Result

Outcome = Literal["same", "differs", "could not run"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PacksRecord:
    """The packs that were compared."""

    origin: str  #: artifact's folder, or that they were made up
    split: str  #: of the artifact
    numbers: tuple[int, ...]  #: of the packs in the split
    num_sequences: int  #: in them
    num_tokens: int  #: runtime tokens without alignment padding
    num_trained: int  #: trained tokens
    num_cut: int  #: packs that were shortened
    vocab_size: int  #: of the renumbered tokens
    fingerprint: str  #: sha256 of what is in them


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """How far a layout is from the reference in one precision."""

    precision: str  #: of both
    bound: float  #: largest relative distance allowed
    outcome: Outcome  #: within the bound or not, or it did not get that far
    loss: float | None = None  #: relative distance of the loss
    gradient: float | None = None  #: largest relative distance of a gradient
    parameter: str | None = None  #: whose gradient that is
    sequence: float | None = None  #: largest relative distance of a sequence's loss
    gradients: Mapping[str, float] = field(default_factory=dict)  #: parameter -> relative distance, the largest first
    reason: str = ""  #: why it stopped


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutRecord:
    """A layout and what came out."""

    name: str  #: of the layout
    sequence_parallel: bool  #: activations are split over tensor-parallel ranks
    kernel: str  #: what computed attention
    pad_seq_to_mult: int  #: multiple that its packs are laid out with
    is_laid_out_anew: bool  #: the artifact's boundaries do not fit it, so sequences were padded for it
    measured: tuple[Measured, ...]  #: in each precision


@dataclass(frozen=True, kw_only=True, slots=True)
class CanaryReport(Result):
    """What was compared, and what came out."""

    TABLE: ClassVar = "findings"

    target: str  #: what the user named
    recipe: str  #: its name
    outcome: Outcome  #: everything agrees, something differs, or a layout could not run
    packs: PacksRecord  #: what was compared
    provider: str  #: class of the model
    model: Mapping[str, Any]  #: its sizes
    seed: int  #: of the weights
    planted: str | None  #: fault that was planted
    bounds: tuple[Bound, ...]  #: in each precision
    layouts: tuple[LayoutRecord, ...]  #: one by one
    findings: tuple[CanaryFinding, ...]  #: what is wrong, by name
    notes: tuple[str, ...]  #: what the reader should know
    versions: Mapping[str, str]  #: distribution -> version
    fingerprint: str  #: sha256 of packs, model, seed, layouts, bounds and versions; the same from run to run
