"""What the canary is asked, what it asks of its processes, and what these saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Precision = Literal["float32", "float64", "bfloat16"]
Kernel = Literal["reference", "transformer_engine"]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """How a run is spread over processes.

    Attributes:
        tensor: tensor-parallel ranks.
        pipeline: pipeline stages.
        context: context-parallel ranks.
        data: data-parallel ranks.
        sequence_parallel: whether activations are split over tensor-parallel ranks.
    """

    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    data: int = 1
    sequence_parallel: bool = False

    @property
    def world_size(self) -> int:
        """Processes."""
        return self.tensor * self.pipeline * self.context * self.data

    @property
    def name(self) -> str:
        """E.g. `CP 2 + TP 2`; `one rank` where nothing is split."""
        sizes = (("CP", self.context), ("TP", self.tensor), ("PP", self.pipeline), ("DP", self.data))
        return " + ".join(f"{what} {size}" for what, size in sizes if size > 1) or "one rank"


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFacts:
    """What the host says of a recipe, once it has loaded it.

    Attributes:
        provider: class of the model.
        model: the sizes that the tiny model has in place of the recipe's.
        is_moe: it has experts.
        sequence_parallel: of the recipe's model.
        calculate_per_token_loss: of the recipe's model.
        pad_to_max_length: of the recipe's dataset.
        pad_cu_seqlens: of the recipe's dataset.
        notes: what of the recipe is left out, and why.
        versions: distribution -> version.
        num_gpus: GPUs that processes can use here.
        has_transformer_engine: TransformerEngine can be imported.
    """

    provider: str
    model: Mapping[str, Any]
    is_moe: bool
    sequence_parallel: bool
    calculate_per_token_loss: bool
    pad_to_max_length: bool
    pad_cu_seqlens: bool
    notes: tuple[str, ...]
    versions: Mapping[str, str]
    num_gpus: int
    has_transformer_engine: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """One training step.

    Attributes:
        layout: over which processes.
        precision: what it computes in.
        kernel: what computes attention.
        is_packed: packs, or each sequence in a row of its own.
        folder: with the packs, or `sequences.npz`; what ranks see is written below it.
        num_rows: rows of the global batch: packs, or sequences.
        packed_sequence_size: runtime tokens of a pack's row.
        pad_seq_to_mult: multiple of the sequences' physical runtime lengths.
        pad_to_max_length: rows are as long as a pack can be.
        pad_cu_seqlens: offsets have one shape, and max_seqlen comes from the metadata.
        eos_token_id: renumbered.
        vocab_size: of the renumbered tokens.
        seed: of the weights.
        fault: what is planted.
        timeout_s: after which the processes are ended.
    """

    layout: Layout
    precision: Precision
    kernel: Kernel
    is_packed: bool
    folder: str
    num_rows: int
    packed_sequence_size: int
    pad_seq_to_mult: int
    pad_to_max_length: bool
    pad_cu_seqlens: bool
    eos_token_id: int
    vocab_size: int
    seed: int
    fault: str | None = None
    timeout_s: float = 300.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenBatch:
    """What one rank saw of one micro batch; None for what its pipeline stage does not get.

    Attributes:
        row: pack of the batch, or sequence.
        tokens: shape [tokens of the rank], int64; so position_ids, labels and loss_mask.
        position_ids: in the sequence.
        labels: the token after each.
        loss_mask: 1 where the label is trained.
        offsets: physical offsets that attention was called with, int64, runtime; None without boundaries.
        max_seqlen: that attention was called with.
        losses: shape [tokens of the rank], float64: of every token; of the last stage.
        was_called: the stage's model was reached.
    """

    row: int
    tokens: IntArray | None = None
    position_ids: IntArray | None = None
    labels: IntArray | None = None
    loss_mask: IntArray | None = None
    offsets: IntArray | None = None
    max_seqlen: int | None = None
    losses: FloatArray | None = None
    was_called: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenRank:
    """What one rank saw of a step.

    Attributes:
        rank: global rank.
        tensor: its tensor-parallel rank; so pipeline, context and data.
        pipeline: its stage.
        context: its context-parallel rank.
        data: its data-parallel rank.
        rows: packs or sequences of its batch, as its loader read them.
        batches: micro batches in order.
        loss: sum over trained tokens, of the last stage.
        num_trained: trained tokens, of the last stage.
        gradients: parameter -> gradient, as it goes to the optimiser.
        cuts: parameter -> (dimension that tensor-parallel ranks split or -1, parts that are interleaved).
        magnitudes: parameter -> norms of the gradient of each row, added up; of unpacked runs.
        calculate_per_token_loss: what the step ran with.
        router_margin: smallest distance between an expert that is chosen and one that is not; None without experts.
    """

    rank: int
    tensor: int
    pipeline: int
    context: int
    data: int
    rows: tuple[int, ...]
    batches: tuple[SeenBatch, ...]
    loss: float
    num_trained: int
    gradients: Mapping[str, FloatArray]
    cuts: Mapping[str, tuple[int, int]]
    magnitudes: Mapping[str, float] = field(default_factory=dict)
    calculate_per_token_loss: bool = True
    router_margin: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOutcome:
    """How a step ended.

    Attributes:
        exit_codes: of each rank; None for one that was ended.
        ranks: what was seen, of those that left something.
        tail: last lines of the first rank that failed.
        reason: its last error; empty where all went well.
    """

    exit_codes: tuple[int | None, ...]
    ranks: tuple[SeenRank, ...]
    tail: str = ""
    reason: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether every rank finished."""
        return all(code == 0 for code in self.exit_codes)
