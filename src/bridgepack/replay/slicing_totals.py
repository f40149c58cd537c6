"""How evenly context-parallel ranks are loaded over many packs, and what alignment costs for each topology."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bridgepack import geometry
from bridgepack.errors import ArtifactError
from bridgepack.geometry import IntArray
from bridgepack.records import PackedRow
from bridgepack.replay.collate import CollateSettings, predict_batch
from bridgepack.replay.slicing import CommunicationType, attention_pairs, misplaced_tokens, slice_row


@dataclass(frozen=True, kw_only=True, slots=True)
class SlicingTotals:
    """What each context-parallel rank gets of all packs; a pack is one micro batch.

    Attributes:
        num_packs: looked at.
        tokens: shape [ranks], int64: tokens of each rank, padding counted; equal where packs are aligned.
        trained_tokens: shape [ranks], int64.
        attention_pairs: shape [ranks], float64: as `attention_pairs`, added up.
        waiting_fraction: share of attention that is waiting: ranks of a pack wait for the slowest of them, 0-1.
        misaligned_packs: the first few packs of which ranks get tokens twice or not at all.
        num_misaligned_packs: how many there are.
        idle_ranks: the first few (pack, rank) where the rank gets no trained token of a pack that has some. The host
            divides by the tokens of all ranks when `calculate_per_token_loss` is on; without it such a rank's loss is
            not a number.
        num_idle_ranks: how many there are.
    """

    num_packs: int
    tokens: IntArray
    trained_tokens: IntArray
    attention_pairs: npt.NDArray[np.float64]
    waiting_fraction: float
    misaligned_packs: tuple[int, ...]
    num_misaligned_packs: int
    idle_ranks: tuple[tuple[int, int], ...]
    num_idle_ranks: int


@dataclass(frozen=True, kw_only=True, slots=True)
class AlignmentWaste:
    """Padding inside sequences that a topology needs.

    Attributes:
        context_parallel_size: ranks that share each sequence.
        tensor_model_parallel_size: ranks that share each layer's weights.
        sequence_parallel: whether activations are split over the latter.
        pad_seq_to_mult: what every sequence's runtime length is a multiple of.
        num_alignment_tokens: runtime tokens of padding over all sequences.
        waste_fraction: of all runtime tokens, padding counted, 0-1.
    """

    context_parallel_size: int
    tensor_model_parallel_size: int
    sequence_parallel: bool
    pad_seq_to_mult: int
    num_alignment_tokens: int
    waste_fraction: float


def slicing_totals(
    packs: Iterable[PackedRow],
    settings: CollateSettings,
    context_parallel_size: int,
    *,
    cp_comm_type: CommunicationType = "p2p",
    hierarchical_context_parallel_sizes: tuple[int, int] | None = None,
    num_examples: int = 5,
) -> SlicingTotals:
    """Return how evenly ranks are loaded over `packs`, read once.

    Raises:
        ArtifactError: no packs, or a malformed one.
        ConfigError: no rank, or an unknown way to exchange.
    """
    loads = [
        _load_of(pack, settings, context_parallel_size, cp_comm_type, hierarchical_context_parallel_sizes)
        for pack in packs
    ]
    if not loads:
        raise ArtifactError("packs is empty; there is nothing to cut. Give the packs of a split.")
    pairs = np.array([load.attention_pairs for load in loads])
    misaligned = [index for index, load in enumerate(loads) if load.is_misaligned]
    idle = [(index, rank) for index, load in enumerate(loads) for rank in load.idle_ranks]
    slowest = float(pairs.max(axis=1).sum())
    return SlicingTotals(
        num_packs=len(loads),
        tokens=np.sum([load.tokens for load in loads], axis=0),
        trained_tokens=np.sum([load.trained_tokens for load in loads], axis=0),
        attention_pairs=pairs.sum(axis=0),
        waiting_fraction=1 - float(pairs.mean(axis=1).sum()) / slowest if slowest else 0.0,
        misaligned_packs=tuple(misaligned[:num_examples]),
        num_misaligned_packs=len(misaligned),
        idle_ranks=tuple(idle[:num_examples]),
        num_idle_ranks=len(idle),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Load:
    """What each rank gets of one pack; arrays of shape [ranks]."""

    tokens: IntArray
    trained_tokens: IntArray
    attention_pairs: npt.NDArray[np.float64]
    is_misaligned: bool
    idle_ranks: tuple[int, ...]


def _load_of(
    pack: PackedRow,
    settings: CollateSettings,
    context_parallel_size: int,
    cp_comm_type: CommunicationType,
    levels: tuple[int, int] | None,
) -> _Load:
    batch = predict_batch([pack], settings)
    slices = slice_row(batch, 0, context_parallel_size)
    trained = slices.trained_tokens
    return _Load(
        tokens=np.full(context_parallel_size, slices.positions.shape[1]),
        trained_tokens=trained,
        attention_pairs=attention_pairs(
            batch.physical_offsets[0],
            batch.cu_seqlens[0],
            context_parallel_size,
            cp_comm_type=cp_comm_type,
            hierarchical_context_parallel_sizes=levels,
        ),
        is_misaligned=bool(len(misplaced_tokens(slices.positions, batch.tokens.shape[1]))),
        idle_ranks=tuple(np.flatnonzero(trained == 0).tolist()) if batch.loss_mask.any() else (),
    )


def alignment_waste(runtime_lengths: IntArray, topologies: Iterable[tuple[int, int, bool]]) -> list[AlignmentWaste]:
    """Return what alignment costs for each topology.

    Example: lengths [5, 9] for (CP 2, TP 1, no) -> multiple 4, 8 + 12 tokens, so 6 of 20 are padding.

    Args:
        runtime_lengths: shape [num_sequences], int64: logical, before alignment.
        topologies: (context_parallel_size, tensor_model_parallel_size, sequence_parallel) each.
    """
    num_tokens = int(runtime_lengths.sum())
    costs = []
    for context, tensor, is_split in topologies:
        multiple = geometry.pad_seq_to_mult(
            context_parallel_size=context, tensor_model_parallel_size=tensor, sequence_parallel=is_split
        )
        aligned = int(geometry.aligned_runtime_lengths(runtime_lengths, multiple).sum())
        costs.append(
            AlignmentWaste(
                context_parallel_size=context,
                tensor_model_parallel_size=tensor,
                sequence_parallel=is_split,
                pad_seq_to_mult=multiple,
                num_alignment_tokens=aligned - num_tokens,
                waste_fraction=(aligned - num_tokens) / aligned if aligned else 0.0,
            )
        )
    return costs
