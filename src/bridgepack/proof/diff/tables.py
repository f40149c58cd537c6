"""Tables of a split's sequences: origin, position and content hashes of each."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.plan import FIRST_TOKEN, has_pieces, iter_plan_columns, plan_path
from bridgepack.data.tasks import Progress
from bridgepack.errors import ArtifactError
from bridgepack.geometry import IntArray
from bridgepack.records import RowBatch

_COLUMNS = ("pack", "position", "file_index", "row", "runtime_length")
_HASH_BYTES = 8
#: Spreads the positions of pieces over 64 bits.
_ODD = 0x1E3779B97F4A7C15
HashArray = npt.NDArray[np.uint64]


@dataclass(frozen=True, kw_only=True)
class SequenceTable:
    """The sequences of a split in pack order; arrays of shape [num_sequences], about 48 bytes per sequence."""

    packs: IntArray  #: int64, row of the split
    positions: npt.NDArray[np.int32]  #: int32, position in the pack
    files: npt.NDArray[np.int32]  #: int32, index into the split's list of inputs
    rows: IntArray  #: int64, row of that file, from 1
    lengths: npt.NDArray[np.int32]  #: int32, runtime, without alignment padding
    token_hashes: HashArray  #: uint64, of the ids without alignment padding
    content_hashes: HashArray  #: uint64, of ids and loss mask
    first_tokens: IntArray | None = None  #: int64, start in its row, stored coordinates; None if no row was split

    def __len__(self) -> int:
        return len(self.packs)

    def keys(self, file_ids: npt.NDArray[np.int32]) -> IntArray:
        """Return a key for each input row or piece; equal `file_ids` mark the same file in two artifacts."""
        keys: IntArray = (file_ids[self.files].astype(np.int64) << 44) + self.rows
        return keys if self.first_tokens is None else keys ^ (self.first_tokens * _ODD)


def read_sequence_table(artifact: Artifact, split: str, progress: Progress) -> SequenceTable:
    """Return the table of a split; reads every shard once, in batches.

    Raises:
        ArtifactError: the split does not exist, or shards and plan cannot be read or are inconsistent.
    """
    record = artifact.split(split)
    plan = {name: _plan_column(artifact, split, name) for name in _COLUMNS}
    num_sequences = len(plan["pack"])
    if np.any((plan["file_index"] < 0) | (plan["file_index"] >= len(record.inputs))):
        raise _misfit(artifact, split)
    tokens, contents = (np.empty(num_sequences, dtype=np.uint64) for _ in range(2))
    progress.start(f"Reading {artifact.folder.name} {split}", record.statistics.num_packs, "packs")
    num_rows_before = first_pack = 0
    for batch in artifact.iter_batches(split):
        stop = num_rows_before + len(batch.seq_start_id)
        lengths = plan["runtime_length"][num_rows_before:stop]
        _check_fit(artifact, split, batch, plan["pack"][num_rows_before:stop] - first_pack, lengths)
        _hash_batch(batch, lengths, tokens[num_rows_before:stop], contents[num_rows_before:stop])
        num_rows_before, first_pack = stop, first_pack + batch.num_rows
        progress.advance(batch.num_rows)
    progress.finish()
    if num_rows_before != num_sequences:
        raise _misfit(artifact, split)
    return SequenceTable(
        packs=plan["pack"].astype(np.int64),
        positions=plan["position"].astype(np.int32),
        files=plan["file_index"].astype(np.int32),
        rows=plan["row"].astype(np.int64),
        first_tokens=_plan_column(artifact, split, FIRST_TOKEN) if has_pieces(artifact, split) else None,
        lengths=plan["runtime_length"].astype(np.int32),
        token_hashes=tokens,
        content_hashes=contents,
    )


def _plan_column(artifact: Artifact, split: str, name: str) -> IntArray:
    parts = [part for (part,) in iter_plan_columns(artifact, split, (name,))]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _check_fit(artifact: Artifact, split: str, batch: RowBatch, packs: IntArray, lengths: IntArray) -> None:
    """Refuse a batch whose rows do not match the plan's sequences and their lengths."""
    kinds = ((batch.input_ids, "iu"), (batch.loss_mask, "iufb"), (batch.seq_start_id, "iu"))
    if any(column.dtype.kind not in kinds_of_column for column, kinds_of_column in kinds):
        raise _misfit(artifact, split)
    num_sequences = np.diff(batch.start_offsets)
    pack_of_sequence = np.repeat(np.arange(batch.num_rows), num_sequences)
    if not np.array_equal(packs, pack_of_sequence) or not np.array_equal(batch.mask_offsets, batch.token_offsets):
        raise _misfit(artifact, split)
    starts = _starts(batch)
    stops = np.append(starts, batch.token_offsets[-1])[1:]
    if np.any(starts + lengths.astype(np.int64) + 1 > stops) or np.any(lengths < 0) or np.any(np.diff(starts) < 1):
        raise _misfit(artifact, split)


def _starts(batch: RowBatch) -> IntArray:
    starts: IntArray = batch.seq_start_id.astype(np.int64) + np.repeat(
        batch.token_offsets[:-1], np.diff(batch.start_offsets)
    )
    return starts


def _hash_batch(batch: RowBatch, lengths: IntArray, tokens: HashArray, contents: HashArray) -> None:
    """Write hashes of each sequence in a batch, without alignment padding, into the two arrays."""
    starts = _starts(batch).tolist()
    ids = np.ascontiguousarray(batch.input_ids, dtype=np.int32)
    mask = np.ascontiguousarray(batch.loss_mask, dtype=np.int8)
    id_bytes, mask_bytes = memoryview(ids).cast("B"), memoryview(mask).cast("B")
    width = ids.itemsize
    for index, (start, length) in enumerate(zip(starts, lengths.tolist(), strict=True)):
        stop = start + length + 1
        digest = hashlib.blake2b(id_bytes[start * width : stop * width], digest_size=_HASH_BYTES)
        tokens[index] = int.from_bytes(digest.digest(), "little")
        digest.update(mask_bytes[start : stop - 1])
        contents[index] = int.from_bytes(digest.digest(), "little")


def _misfit(artifact: Artifact, split: str) -> ArtifactError:
    return ArtifactError(
        f"{plan_path(artifact, split)} does not match the packs, so the sources of the sequences are unknown. "
        "The artifact was changed; `bridgepack prove sources` shows where. Build it again."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Matched:
    """Matching sequences of two tables, as pairs of indices; arrays of shape [num_pairs], int64."""

    unchanged: tuple[IntArray, IntArray]  #: same input row, same content
    moved: tuple[IntArray, IntArray]  #: same content, different input row
    masks: tuple[IntArray, IntArray]  #: same tokens, different mask
    retokenized: tuple[IntArray, IntArray]  #: same input row, different tokens
    lost: IntArray  #: indices of the first table without a partner
    gained: IntArray  #: indices of the second table without a partner


class _Unmatched:
    """Sequences of two tables that have no partner yet."""

    def __init__(self, num_first: int, num_second: int) -> None:
        self.first, self.second = np.arange(num_first), np.arange(num_second)

    def take(self, first: npt.NDArray[Any], second: npt.NDArray[Any]) -> tuple[IntArray, IntArray]:
        """Return index pairs of sequences with equal keys, one to one in order; keys are per table sequence."""
        ours, theirs = _rank_keys(first[self.first], second[self.second])
        _, at, to = np.intersect1d(ours, theirs, assume_unique=True, return_indices=True)
        order = np.argsort(at)
        pairs = self.first[at[order]], self.second[to[order]]
        self.first, self.second = np.delete(self.first, at), np.delete(self.second, to)
        return pairs


def match_sequences(
    first: SequenceTable, second: SequenceTable, file_ids: tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]
) -> Matched:
    """Return the matching sequences of two tables: by input row and content, then content, tokens, row.

    `file_ids` are ids of each table's files; equal ids are the same file.
    """
    remainder = _Unmatched(len(first), len(second))
    ours, theirs = first.keys(file_ids[0]), second.keys(file_ids[1])
    equal_pairs = remainder.take(_joint(ours, first.content_hashes), _joint(theirs, second.content_hashes))
    moves = remainder.take(first.content_hashes, second.content_hashes)
    masks = remainder.take(_joint(ours, first.token_hashes), _joint(theirs, second.token_hashes))
    same_tokens = remainder.take(first.token_hashes, second.token_hashes)
    new_tokens = remainder.take(ours, theirs)
    return Matched(
        unchanged=equal_pairs,
        moved=moves,
        masks=(np.concatenate((masks[0], same_tokens[0])), np.concatenate((masks[1], same_tokens[1]))),
        retokenized=new_tokens,
        lost=remainder.first,
        gained=remainder.second,
    )


def _joint(keys: IntArray, hashes: HashArray) -> HashArray:
    """Return one well-mixed hash of input row and content."""
    with np.errstate(over="ignore"):
        spread: HashArray = (keys.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        spread ^= spread >> np.uint64(32)
        return (spread * np.uint64(0xD6E8FEB86659FD93)) ^ hashes


def _rank_keys(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> tuple[IntArray, IntArray]:
    """Return keys as unique numbers: equal keys on one side are numbered in order.

    Example: [7 7 9] and [7 9 9] -> the first 7 and the first 9 of each side are equal, the others are not.
    """
    _, codes = np.unique(np.concatenate((first, second)), return_inverse=True)
    size = len(codes) + 1
    ours, theirs = codes[: len(first)].astype(np.int64), codes[len(first) :].astype(np.int64)
    return ours * size + _ranks(ours), theirs * size + _ranks(theirs)


def _ranks(codes: IntArray) -> IntArray:
    """Return how many equal codes precede each: [5 3 5] -> [0 0 1]."""
    _, counts = np.unique(codes, return_counts=True)
    ranks = np.empty(len(codes), dtype=np.int64)
    ranks[np.argsort(codes, kind="stable")] = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
    return ranks
