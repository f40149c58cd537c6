"""What the canary reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bridgepack.canary.bounds import Bound
from bridgepack.canary.naming import CanaryFinding

Outcome = Literal["same", "differs", "could not run"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PacksRecord:
    """The packs that were compared.

    Attributes:
        origin: artifact's folder, or that they were made up.
        split: of the artifact.
        numbers: of the packs in the split.
        num_sequences: in them.
        num_tokens: runtime tokens without alignment padding.
        num_trained: trained tokens.
        num_cut: packs that were shortened.
        vocab_size: of the renumbered tokens.
        fingerprint: sha256 of what is in them.
    """

    origin: str
    split: str
    numbers: tuple[int, ...]
    num_sequences: int
    num_tokens: int
    num_trained: int
    num_cut: int
    vocab_size: int
    fingerprint: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """How far a layout is from the reference in one precision.

    Attributes:
        precision: of both.
        bound: largest relative distance allowed.
        loss: relative distance of the loss.
        gradient: largest relative distance of a gradient.
        parameter: whose gradient that is.
        sequence: largest relative distance of a sequence's loss.
        gradients: parameter -> relative distance, the largest first.
        outcome: within the bound or not, or it did not get that far.
        reason: why it stopped.
    """

    precision: str
    bound: float
    outcome: Outcome
    loss: float | None = None
    gradient: float | None = None
    parameter: str | None = None
    sequence: float | None = None
    gradients: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutRecord:
    """A layout and what came out.

    Attributes:
        name: of the layout.
        sequence_parallel: activations are split over tensor-parallel ranks.
        kernel: what computed attention.
        pad_seq_to_mult: multiple that its packs are laid out with.
        is_laid_out_anew: the artifact's boundaries do not fit it, so sequences were padded for it.
        measured: in each precision.
    """

    name: str
    sequence_parallel: bool
    kernel: str
    pad_seq_to_mult: int
    is_laid_out_anew: bool
    measured: tuple[Measured, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CanaryReport:
    """What was compared, and what came out.

    Attributes:
        target: what the user named.
        recipe: its name.
        outcome: everything agrees, something differs, or a layout could not run.
        packs: what was compared.
        provider: class of the model.
        model: its sizes.
        seed: of the weights.
        planted: fault that was planted.
        bounds: in each precision.
        layouts: one by one.
        findings: what is wrong, by name.
        notes: what the reader should know.
        versions: distribution -> version.
        fingerprint: sha256 of packs, model, seed, layouts, bounds and versions; the same from run to run.
    """

    target: str
    recipe: str
    outcome: Outcome
    packs: PacksRecord
    provider: str
    model: Mapping[str, Any]
    seed: int
    planted: str | None
    bounds: tuple[Bound, ...]
    layouts: tuple[LayoutRecord, ...]
    findings: tuple[CanaryFinding, ...]
    notes: tuple[str, ...]
    versions: Mapping[str, str]
    fingerprint: str
