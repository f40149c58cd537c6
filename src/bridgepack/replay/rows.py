"""Packs as the host counts them over shards, and the tokens that each trains at runtime."""

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from bridgepack.errors import ConfigError
from bridgepack.geometry import IntArray
from bridgepack.records import RowBatch


class ShardRow(NamedTuple):
    """A pack's place on disk: the shard's name, and the row in it from 0."""

    shard: str
    row: int


class ShardIndex:
    """Places of packs in a split's shards, which the host puts one after another in the order of their names.

    Source: megatron-bridge 0.6.2, data/packing/paths.py (_resolve_parquet_paths), data/packing/parquet.py
    (_locate_row); 0.4.0 to 0.5.1, data/datasets/packed_parquet.py. All shards of a split are in one folder.
    """

    def __init__(self, num_rows: Mapping[str, int]) -> None:
        """Index the shards, name -> rows; an empty shard has no place."""
        self.shards = tuple(sorted(num_rows))
        self._offsets = [0, *accumulate(num_rows[name] for name in self.shards)]

    @property
    def num_packs(self) -> int:
        """Rows of all shards."""
        return self._offsets[-1]

    def place_of(self, pack: int) -> ShardRow:
        """Return where a pack is: shards of 3 and 2 rows -> pack 4 is row 1 of the second.

        Raises:
            ConfigError: there is no such pack.
        """
        if not 0 <= pack < self.num_packs:
            raise ConfigError(f"pack is {pack}; allowed: 0 to {self.num_packs - 1}.")
        shard = bisect_right(self._offsets, pack) - 1
        return ShardRow(self.shards[shard], pack - self._offsets[shard])


def trained_runtime_tokens(batch: RowBatch, eos_token_id: int) -> IntArray:
    """Return the tokens that each row trains; shape [num_rows], int64.

    Counted after the host's collate: each sequence's last stored token is no input, and an input that is EOS trains
    nothing. It is the sum of `predict_batch(...).loss_mask` for the row.

    Source: megatron-bridge 0.6.2, data/packing/gpt_sft.py (collate_fn, _build_loss_mask), `answer_only_loss` true.
    """
    trains = (batch.loss_mask != 0) & (batch.input_ids != eos_token_id)
    num_sequences = np.diff(batch.start_offsets)
    starts = batch.seq_start_id.astype(np.int64) + np.repeat(batch.token_offsets[:-1], num_sequences)
    trains[np.append(starts, batch.token_offsets[-1])[1:] - 1] = False
    totals = np.concatenate(([0], np.cumsum(trains)))
    counts: IntArray = totals[batch.token_offsets[1:]] - totals[batch.token_offsets[:-1]]
    return counts
