"""Predicts which tokens of a pack go to which context-parallel rank.

Each sequence of a row is cut into `2 * context_parallel_size` chunks; rank `r` gets chunk `r` from the front and chunk
`r` from the back. This holds for every `cp_comm_type`; these differ only in what ranks exchange for the
attention.

Source: megatron-bridge 0.6.2, training/gpt_step.py (_partition_packed_batch_for_cp); megatron-core 0.19.2,
core/utils.py (get_batch_on_this_cp_rank).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bridgepack.errors import ConfigError
from bridgepack.geometry import IntArray
from bridgepack.replay.collate import HostBatch


@dataclass(frozen=True, kw_only=True, slots=True)
class RankSlices:
    """Each context-parallel rank's tokens of one row, in the rank's own order."""

    positions: IntArray  #: shape [num_ranks, tokens per rank], int64, runtime: positions in the row
    tokens: IntArray  #: same shape, int64, like `labels`, `loss_mask` and `position_ids`
    labels: IntArray  #: the token after each of `tokens` in its sequence
    loss_mask: IntArray  #: 1 where the label is trained
    position_ids: IntArray

    @property
    def trained_tokens(self) -> IntArray:
        """Number of trained tokens per rank; shape [num_ranks], int64."""
        counts: IntArray = self.loss_mask.sum(axis=1)
        return counts


def thd_positions(cu_seqlens: npt.ArrayLike, num_tokens: int, context_parallel_size: int) -> IntArray:
    """Return each rank's token positions, as TransformerEngine computes them; [num_ranks, tokens per rank], int64.

    It divides the offsets by the number of ranks and finds each token's sequence by bisection, without checks: offsets
    that are not multiples of twice the ranks, or are padded with -1, give tokens twice or never, as in the original.

    Example: offsets [0, 4, 12] on 2 ranks -> [[0, 3, 4, 5, 10, 11], [1, 2, 6, 7, 8, 9]].

    Source: TransformerEngine 1.10 to 2.18, common/fused_attn/context_parallel.cu (thd_partition_indices_kernel,
    binary_search).

    Raises:
        ConfigError: `context_parallel_size` is below 1, or there are fewer than two offsets.
    """
    offsets = np.asarray(cu_seqlens, dtype=np.int64).reshape(-1)
    if context_parallel_size < 1:
        raise ConfigError(f"context_parallel_size is {context_parallel_size}; allowed: whole numbers from 1.")
    if len(offsets) < 2:
        raise ConfigError(f"cu_seqlens has {len(offsets)} entries; allowed: at least 2, the ends of one sequence.")
    # C++ rounds towards 0; // would map -1 to -1.
    shares = np.sign(offsets) * (np.abs(offsets) // context_parallel_size)
    tokens = np.arange(num_tokens // context_parallel_size)
    sequences = _bisect(tokens, shares)
    lengths = shares[sequences + 1] - shares[sequences]
    halves = np.sign(lengths) * (np.abs(lengths) // 2)
    places = tokens - shares[sequences]
    ranks = np.arange(context_parallel_size)[:, None]
    chunks = np.where(places < halves, ranks, 2 * (context_parallel_size - 1) - ranks)
    positions: IntArray = places + shares[sequences] * context_parallel_size + halves * chunks
    return positions


def slice_row(batch: HostBatch, row: int, context_parallel_size: int) -> RankSlices:
    """Return each context-parallel rank's tokens of one row of a batch, as the host's forward step slices it.

    Raises:
        ConfigError: `context_parallel_size` is below 1.
    """
    width = batch.tokens.shape[1]
    positions = np.arange(width, dtype=np.int64)[None]
    if context_parallel_size != 1:
        positions = thd_positions(batch.physical_offsets[row], width, context_parallel_size)
    return RankSlices(
        positions=positions,
        tokens=batch.tokens[row, positions],
        labels=batch.labels[row, positions],
        loss_mask=batch.loss_mask[row, positions],
        position_ids=batch.position_ids[row, positions],
    )


def misplaced_tokens(positions: IntArray, num_tokens: int) -> IntArray:
    """Return the tokens that ranks get twice or not at all; shape [num_misplaced], int64, ascending; ideally empty."""
    inside = positions[(positions >= 0) & (positions < num_tokens)]
    return np.flatnonzero(np.bincount(inside.reshape(-1), minlength=num_tokens) != 1)


def _bisect(tokens: IntArray, shares: IntArray) -> IntArray:
    """Return each token's sequence from TransformerEngine's bisection, even for offsets that do not ascend."""
    low, high = np.ones_like(tokens), np.full_like(tokens, len(shares) - 1)
    while (is_open := low < high).any():
        middle = (low + high) // 2
        is_before = shares[middle] <= tokens
        low = np.where(is_open & is_before, middle + 1, low)
        high = np.where(is_open & ~is_before, middle, high)
    return low - 1
