"""Makes packed artifacts of any size: full rows of several sequences, a prompt and an answer in each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bridgepack.data.shards.write import shard_name, write_shard
from bridgepack.records import TRAIN, VALIDATION, RowBatch

EOS_TOKEN_ID = 2
VOCAB_SIZE = 100_000
#: Mean runtime tokens of a sequence.
_SEQUENCE_TOKENS = 400
_SHARD_TOKENS = 1 << 25
_BATCH_ROWS = 512


def write_packs(folder: Path, num_rows: int, packed_sequence_size: int) -> None:
    """Write an artifact without a manifest: `num_rows` rows to train on, and a hundredth as many to validate."""
    rng = np.random.default_rng(1234)
    pool = np.minimum(rng.zipf(1.2, size=1 << 20) + EOS_TOKEN_ID, VOCAB_SIZE - 1).astype(np.int32)
    for split, rows in ((TRAIN, num_rows), (VALIDATION, max(num_rows // 100, 1))):
        (folder / split).mkdir(parents=True)
        num_shards = -(-rows * packed_sequence_size // _SHARD_TOKENS)
        bounds = [rows * index // num_shards for index in range(num_shards + 1)]
        for index in range(num_shards):
            batches = _batches(rng, pool, bounds[index + 1] - bounds[index], packed_sequence_size)
            write_shard(
                folder / split / shard_name(index, num_shards), batches, packed_sequence_size=packed_sequence_size
            )


def _batches(rng: np.random.Generator, pool: np.ndarray, num_rows: int, size: int) -> Iterator[RowBatch]:
    for first in range(0, num_rows, _BATCH_ROWS):
        yield _batch(rng, pool, min(_BATCH_ROWS, num_rows - first), size)


def _batch(rng: np.random.Generator, pool: np.ndarray, num_rows: int, size: int) -> RowBatch:
    """Return full rows; their sequences are cut at random multiples of 8 runtime tokens."""
    num_cuts = min(size // _SEQUENCE_TOKENS, size // 8 - 1)
    cuts = [np.sort(rng.choice(size // 8 - 1, num_cuts, replace=False) + 1) * 8 for _ in range(num_rows)]
    starts = np.array([np.concatenate(([0], cut + np.arange(1, num_cuts + 1))) for cut in cuts])
    row_length = size + num_cuts + 1
    stored = np.diff(np.append(starts, np.full((num_rows, 1), row_length), axis=1)).ravel()
    ends, prompt = np.cumsum(stored), np.maximum((stored * rng.uniform(0.2, 0.8, len(stored))).astype(np.int64), 1)
    ids = pool[rng.integers(len(pool), size=num_rows * row_length)]
    ids[ends - 1] = EOS_TOKEN_ID
    mask = (np.arange(len(ids)) - np.repeat(ends - stored, stored) >= np.repeat(prompt, stored) - 1).astype(np.int8)
    mask[ends - 1] = 0
    offsets = np.arange(num_rows + 1) * row_length
    starts_of = {"seq_start_id": starts.ravel(), "start_offsets": np.arange(num_rows + 1) * (num_cuts + 1)}
    tokens = {"input_ids": ids, "token_offsets": offsets, "loss_mask": mask, "mask_offsets": offsets}
    return RowBatch(shard="", first_row=0, **tokens, **starts_of)
