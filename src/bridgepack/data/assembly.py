"""PackPlan + token store -> packed rows: gather, pad to the multiple, roll the mask. No Python list of tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bridgepack.data.token_store import TokenStore
from bridgepack.geometry import IntArray, aligned_runtime_lengths
from bridgepack.records import MaskArray, RowBatch, TokenArray

#: Stored tokens of a batch of rows; bounds memory.
_BATCH_TOKENS = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardPlan:
    """One shard to be written: its packs, and where each of their sequences lies in the token store.

    Attributes:
        path: of the shard.
        name: relative to the artifact.
        pack_offsets: shape [num_packs + 1]: pack `p` has sequences `pack_offsets[p]:pack_offsets[p + 1]`.
        store_files: shape [num_sequences], position of the store file.
        store_indices: shape [num_sequences], position inside that file.
        stored_lengths: shape [num_sequences], before alignment.
        pad_seq_to_mult: multiple of every runtime length.
        pad_token_id: what alignment padding is made of.
        packed_sequence_size: runtime tokens a pack can hold.
    """

    path: Path
    name: str
    pack_offsets: IntArray
    store_files: IntArray
    store_indices: IntArray
    stored_lengths: IntArray
    pad_seq_to_mult: int
    pad_token_id: int
    packed_sequence_size: int


def assemble_rows(plan: ShardPlan, store: TokenStore, *, rows_per_group: int) -> Iterator[RowBatch]:
    """Yield the shard's rows in order, in batches of whole row groups."""
    rows_per_batch = max(1, _BATCH_TOKENS // (plan.packed_sequence_size * rows_per_group)) * rows_per_group
    num_packs = len(plan.pack_offsets) - 1
    for first in range(0, num_packs, rows_per_batch):
        yield _assemble(plan, store, first, min(first + rows_per_batch, num_packs))


def _assemble(plan: ShardPlan, store: TokenStore, first: int, stop: int) -> RowBatch:
    start, end = int(plan.pack_offsets[first]), int(plan.pack_offsets[stop])
    lengths = plan.stored_lengths[start:end]
    physical = aligned_runtime_lengths(lengths - 1, plan.pad_seq_to_mult) + 1
    sequence_ends = np.cumsum(physical)
    sequence_starts = sequence_ends - physical
    ids = np.full(int(sequence_ends[-1]), plan.pad_token_id, dtype=np.int32)
    mask = np.zeros(len(ids), dtype=np.int8)
    for index in range(end - start):
        tokens, trained = store.tokens(int(plan.store_files[start + index]), int(plan.store_indices[start + index]))
        _place(ids, mask, int(sequence_starts[index]), tokens, trained)
    in_pack = plan.pack_offsets[first : stop + 1] - start
    token_offsets = np.concatenate(([0], sequence_ends))[in_pack]
    row_of_sequence = np.repeat(np.arange(stop - first), np.diff(in_pack))
    return RowBatch(
        shard=plan.name,
        first_row=first,
        input_ids=ids,
        token_offsets=token_offsets,
        loss_mask=mask,
        mask_offsets=token_offsets,
        seq_start_id=(sequence_starts - token_offsets[row_of_sequence]).astype(np.int32),
        start_offsets=in_pack,
    )


def _place(ids: TokenArray, mask: MaskArray, start: int, tokens: TokenArray, trained: MaskArray) -> None:
    """Copy one sequence in; its mask moves left by one, so that it lies with the labels and ends in 0."""
    ids[start : start + len(tokens)] = tokens
    mask[start : start + len(tokens) - 1] = trained[1:]
