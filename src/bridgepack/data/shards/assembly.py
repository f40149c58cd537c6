"""PackPlan + token store -> packed rows: gather, pad to the multiple, shift the mask. No Python lists of tokens."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bridgepack.data.store.token_file import TokenArrays, token_arrays
from bridgepack.geometry import IntArray, aligned_runtime_lengths
from bridgepack.records import MaskArray, RowBatch, TokenArray

#: Stored tokens per batch of rows; bounds memory.
_BATCH_TOKENS = 1 << 20
#: Token files kept open at once; below the usual limit of 1024 open files per process.
_MAX_OPEN_FILES = 640

#: Position of a token file -> its arrays.
_Opened = Callable[[int], TokenArrays]


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardPlan:
    """One shard to write: its packs, and the location of each of their sequences in the token store."""

    path: Path
    name: str  #: relative to the artifact
    pack_offsets: IntArray  #: shape [num_packs + 1]: pack `p` has sequences `pack_offsets[p]:pack_offsets[p + 1]`
    store_files: IntArray  #: shape [num_sequences], index of the token file
    store_indices: IntArray  #: shape [num_sequences], index in that file
    stored_lengths: IntArray  #: shape [num_sequences], without alignment padding
    pad_seq_to_mult: int  #: every runtime length is padded to a multiple of it
    pad_token_id: int
    packed_sequence_size: int  #: runtime tokens a pack can hold


def assemble_rows(plan: ShardPlan, token_files: Sequence[Path], *, rows_per_group: int) -> Iterator[RowBatch]:
    """Yield the shard's rows in order, in batches of whole row groups; keeps recently used token files open."""
    arrays = lru_cache(maxsize=_MAX_OPEN_FILES)(lambda file: token_arrays(token_files[file]))
    rows_per_batch = max(1, _BATCH_TOKENS // (plan.packed_sequence_size * rows_per_group)) * rows_per_group
    num_packs = len(plan.pack_offsets) - 1
    for first in range(0, num_packs, rows_per_batch):
        yield _assemble(plan, arrays, first, min(first + rows_per_batch, num_packs))


def _assemble(plan: ShardPlan, arrays: _Opened, first: int, stop: int) -> RowBatch:
    start, end = int(plan.pack_offsets[first]), int(plan.pack_offsets[stop])
    stored = plan.stored_lengths[start:end]
    physical = aligned_runtime_lengths(stored - 1, plan.pad_seq_to_mult) + 1
    sequence_ends = np.cumsum(physical)
    sequence_starts = sequence_ends - physical
    ids, flat_mask = _gathered(plan, arrays, slice(start, end), physical - stored)
    in_pack = plan.pack_offsets[first : stop + 1] - start
    token_offsets = np.concatenate(([0], sequence_ends))[in_pack]
    row_of_sequence = np.repeat(np.arange(stop - first), np.diff(in_pack))
    return RowBatch(
        shard=plan.name,
        first_row=first,
        input_ids=ids,
        token_offsets=token_offsets,
        loss_mask=_label_aligned(flat_mask, sequence_ends),
        mask_offsets=token_offsets,
        seq_start_id=(sequence_starts - token_offsets[row_of_sequence]).astype(np.int32),
        start_offsets=in_pack,
    )


def _gathered(plan: ShardPlan, arrays: _Opened, members: slice, padding: IntArray) -> tuple[TokenArray, MaskArray]:
    """Return ids and token-aligned masks of consecutive sequences, each followed by its padding; read-only.

    Joining memory views takes half the time of `numpy.concatenate`, because most of the time is overhead per piece.
    """
    files, indices = plan.store_files[members], plan.store_indices[members]
    starts = np.empty(len(files), dtype=np.int64)
    ids, masks = {}, {}
    for file in np.unique(files).tolist():
        found = arrays(file)
        chosen = files == file
        starts[chosen] = found.offsets[indices[chosen]]
        ids[file], masks[file] = memoryview(found.input_ids), memoryview(found.loss_mask)
    stops = (starts + plan.stored_lengths[members]).tolist()
    places = list(zip(files.tolist(), starts.tolist(), stops, strict=True))
    pad_ids = np.full(padding.max(initial=0), plan.pad_token_id, dtype=np.int32)
    pad_mask = np.zeros_like(pad_ids, dtype=np.int8)
    id_pieces = _padded([ids[file][start:stop] for file, start, stop in places], pad_ids, padding)
    mask_pieces = _padded([masks[file][start:stop] for file, start, stop in places], pad_mask, padding)
    return np.frombuffer(b"".join(id_pieces), dtype=np.int32), np.frombuffer(b"".join(mask_pieces), dtype=np.int8)


def _padded(pieces: list[memoryview], pad: npt.NDArray[Any], padding: IntArray) -> list[memoryview]:
    """Return the pieces, each followed by as much of `pad` as it needs."""
    if not len(pad):
        return pieces
    pads = [memoryview(pad)[:size] for size in range(len(pad) + 1)]
    both = pieces * 2
    both[::2] = pieces
    both[1::2] = [pads[size] for size in padding.tolist()]
    return both


def _label_aligned(mask: MaskArray, sequence_ends: IntArray) -> MaskArray:
    """Return the label-aligned mask: shifted left by one within each sequence, with 0 at its end."""
    aligned = np.empty_like(mask)
    aligned[:-1] = mask[1:]
    aligned[sequence_ends - 1] = 0
    return aligned
