"""Options of the canary, requests to its processes, their records, and the report."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from bridgepack.data.tasks import Progress, SilentProgress
from bridgepack.host import HostRelease, release_of
from bridgepack.records.results import Result
from bridgepack.records.words import count_text
from bridgepack.replay.settings import Topology

Precision = Literal["float32", "float64", "bfloat16"]
Kernel = Literal["reference", "transformer_engine"]
Outcome = Literal["same", "differs", "could not run"]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
#: Rank of the adapters, among the sizes of a tiny model.
ADAPTER_SIZE = "adapter_dim"


@dataclass(frozen=True, kw_only=True, slots=True)
class CanaryOptions:
    """Options of a comparison."""

    artifact: Path | None = None  #: packs of a recipe (default: its artifact)
    overrides: Mapping[str, Any] = field(default_factory=dict)  #: dotted path -> value, changes to the recipe
    tensor: int | None = None  #: tensor-parallel ranks of the only layout
    pipeline: int | None = None  #: pipeline stages
    context: int | None = None  #: context-parallel ranks
    num_packs: int = 4  #: number of packs to compare
    max_tokens: int = 1024  #: maximum runtime tokens per pack
    device: Literal["cpu", "gpu"] | None = None  #: `gpu` with TransformerEngine, or `cpu` (default: gpu if available)
    timeout_s: float = 300.0  #: timeout of a step in seconds
    trust_remote_code: bool = False  #: run code that comes with the model, if the recipe names such a one
    progress: Progress = field(default_factory=SilentProgress)  #: receives the progress


def topology_of(
    *, tensor: int = 1, pipeline: int = 1, context: int = 1, data: int = 1, sequence_parallel: bool = False
) -> Topology:
    """Return the topology with so many ranks along each axis."""
    return Topology(
        world_size=tensor * pipeline * context * data,
        tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=pipeline,
        context_parallel_size=context,
        sequence_parallel=sequence_parallel,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFacts:
    """What the host says of a recipe, once it has loaded it."""

    provider: str  #: class of the model
    model: Mapping[str, Any]  #: the sizes that the tiny model has in place of the recipe's
    is_moe: bool  #: it has experts
    sequence_parallel: bool  #: of the recipe's model
    pad_to_max_length: bool  #: of the recipe's dataset
    pad_cu_seqlens: bool  #: of the recipe's dataset
    notes: tuple[str, ...]  #: what of the recipe is left out, and why
    versions: Mapping[str, str]  #: distribution -> version
    bridge_version: str  #: version of Megatron-Bridge, as it says itself
    num_gpus: int  #: GPUs that processes can use here
    has_transformer_engine: bool  #: TransformerEngine can be imported

    @property
    def release(self) -> HostRelease:
        """The release of Megatron-Bridge."""
        return release_of(self.bridge_version)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    """One training step."""

    topology: Topology  #: over which processes
    precision: Precision  #: what it computes in
    kernel: Kernel  #: what computes attention
    is_packed: bool  #: packs, or each sequence in a row of its own
    folder: str  #: with the packs, or `sequences.npz`; what ranks see is written below it
    num_rows: int  #: rows of the global batch: packs, or sequences
    packed_sequence_size: int  #: runtime tokens of a pack's row
    pad_seq_to_mult: int  #: multiple of the sequences' physical runtime lengths
    pad_to_max_length: bool  #: rows are as long as a pack can be
    pad_cu_seqlens: bool  #: offsets have one shape, and max_seqlen comes from the metadata
    eos_token_id: int  #: renumbered
    vocab_size: int  #: of the renumbered tokens
    seed: int  #: of the weights
    fault: str | None = None  #: what is planted
    timeout_s: float = 300.0  #: after which the processes are ended


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenBatch:
    """What one rank saw of one micro batch; None for what its pipeline stage does not get."""

    row: int  #: pack of the batch, or sequence
    tokens: IntArray | None = None  #: shape [tokens of the rank], int64; so position_ids, labels and loss_mask
    position_ids: IntArray | None = None  #: in the sequence
    labels: IntArray | None = None  #: the token after each
    loss_mask: IntArray | None = None  #: 1 where the label is trained
    #: physical offsets that attention was called with, int64, runtime; None without boundaries
    offsets: IntArray | None = None
    max_seqlen: int | None = None  #: that attention was called with
    losses: FloatArray | None = None  #: shape [tokens of the rank], float64: of every token; of the last stage
    was_called: bool = False  #: the stage's model was reached


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenRank:
    """What one rank saw of a step."""

    rank: int  #: global rank
    tensor: int  #: its tensor-parallel rank; so pipeline, context and data
    pipeline: int  #: its stage
    context: int  #: its context-parallel rank
    data: int  #: its data-parallel rank
    rows: tuple[int, ...]  #: packs or sequences of its batch, as its loader read them
    batches: tuple[SeenBatch, ...]  #: micro batches in order
    loss: float  #: sum over trained tokens, of the last stage
    num_trained: int  #: trained tokens, of the last stage
    gradients: Mapping[str, FloatArray]  #: parameter -> gradient, as it goes to the optimiser
    #: parameter -> (dimension that tensor-parallel ranks split or -1, parts that are interleaved)
    cuts: Mapping[str, tuple[int, int]]
    #: parameter -> norms of the gradient of each row, added up; of unpacked runs
    magnitudes: Mapping[str, float] = field(default_factory=dict)
    calculate_per_token_loss: bool = True  #: what the step ran with
    #: smallest distance between an expert that is chosen and one that is not; None without experts
    router_margin: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOutcome:
    """How a step ended."""

    exit_codes: tuple[int | None, ...]  #: of each rank; None for one that was ended
    ranks: tuple[SeenRank, ...]  #: what was seen, of those that left something
    tail: str = ""  #: last lines of the first rank that failed
    reason: str = ""  #: its last error; empty where all went well

    @property
    def is_complete(self) -> bool:
        """Whether every rank finished."""
        return all(code == 0 for code in self.exit_codes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """How far two runs may be apart."""

    precision: Precision  #: what both compute in
    relative: float  #: largest distance, relative to the measure
    chain_length: int  #: roundings of the longest chain
    because: str  #: how it comes about, in one line


@dataclass(frozen=True, kw_only=True, slots=True)
class CanaryFinding:
    """What is wrong, by name."""

    name: str  #: one of `naming.ADVICE`
    layout: str  #: in which it was found
    message: str  #: what was found, where
    advice: str  #: what to do
    rules: tuple[str, ...]  #: codes of the rules that cover it


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

    def headline(self) -> str:
        """Return what came out, in one line."""
        layouts, findings = count_text(len(self.layouts), "layout"), count_text(len(self.findings), "finding")
        return f"{self.target}: {self.outcome}; {layouts}, {findings}"
