"""Full packed rows of given ids."""

from __future__ import annotations

from typing import Any

import numpy as np

from bridgepack.records import RowBatch

#: Sequences of a row, all as long as each other; the last two thirds of each are trained.
_SEQUENCES = 8


def batch_of(ids: Any, size: int) -> RowBatch:
    """Return rows of `size` stored tokens, one after the other."""
    num_rows = len(ids) // size
    starts = np.arange(_SEQUENCES) * size // _SEQUENCES
    place = np.arange(size) % (size // _SEQUENCES)
    offsets = np.arange(num_rows + 1) * size
    return RowBatch(
        shard="",
        first_row=0,
        input_ids=ids[: num_rows * size],
        token_offsets=offsets,
        loss_mask=np.tile((place >= size // _SEQUENCES // 3).astype(np.int8), num_rows),
        mask_offsets=offsets,
        seq_start_id=np.tile(starts.astype(np.int32), num_rows),
        start_offsets=np.arange(num_rows + 1) * _SEQUENCES,
    )
