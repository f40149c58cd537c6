"""Tokenised sequences of one build on disk: one Arrow file per input range, memory-mapped when they are read."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bridgepack.geometry import IntArray
from bridgepack.records import INPUT_IDS, LOSS_MASK, MaskArray, TokenArray
from bridgepack.records import Sequence as TokenSequence

_FILE_INDEX, _ROW, _IS_TRUNCATED, _IS_VALIDATION = "file_index", "row", "is_truncated", "is_validation"
_SCHEMA = pa.schema(
    [
        pa.field(INPUT_IDS, pa.list_(pa.int32())),
        pa.field(LOSS_MASK, pa.list_(pa.int8())),
        pa.field(_FILE_INDEX, pa.int32()),
        pa.field(_ROW, pa.int64()),
        pa.field(_IS_TRUNCATED, pa.bool_()),
        pa.field(_IS_VALIDATION, pa.bool_()),
    ]
)
#: Tokens gathered before a batch is written; bounds a worker's memory.
BATCH_TOKENS = 1 << 20
#: Below the usual limit of 1024 open files of a process.
_MAX_OPEN_FILES = 640


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredSequence:
    """A sequence with where it came from.

    Attributes:
        sequence: its tokens.
        file_index: position of its file in the list of inputs.
        row: 1-based row of that file.
        is_validation: it was set aside for validation.
    """

    sequence: TokenSequence
    file_index: int
    row: int
    is_validation: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class StoreIndex:
    """One entry per sequence of a store file, in row order; each shape [num_sequences].

    Attributes:
        stored_lengths: int32, stored.
        num_trained: int32, ones of the label-aligned mask.
        file_indices: int32.
        rows: int64, 1-based.
        is_truncated: bool.
        is_validation: bool.
    """

    stored_lengths: Any
    num_trained: Any
    file_indices: Any
    rows: Any
    is_truncated: Any
    is_validation: Any


def write_store_file(path: Path, sequences: Iterable[StoredSequence]) -> int:
    """Write sequences in order and return how many there were."""
    pending: list[StoredSequence] = []
    num_tokens = num_sequences = 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, _SCHEMA) as writer:
        for item in sequences:
            pending.append(item)
            num_tokens += item.sequence.stored_length
            num_sequences += 1
            if num_tokens >= BATCH_TOKENS:
                writer.write_batch(_record_batch(pending))
                pending, num_tokens = [], 0
        if pending:
            writer.write_batch(_record_batch(pending))
    return num_sequences


def read_store_index(path: Path) -> StoreIndex:
    """Return what the plan needs of a store file: lengths and origins, no tokens."""
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
        trained = [np.asarray(_num_trained(batch), dtype=np.int32) for batch in batches]
        lengths = [np.diff(np.asarray(batch.column(INPUT_IDS).offsets)).astype(np.int32) for batch in batches]
        return StoreIndex(
            stored_lengths=_joined(lengths, np.int32),
            num_trained=_joined(trained, np.int32),
            file_indices=_column(batches, _FILE_INDEX, np.int32),
            rows=_column(batches, _ROW, np.int64),
            is_truncated=_column(batches, _IS_TRUNCATED, np.bool_),
            is_validation=_column(batches, _IS_VALIDATION, np.bool_),
        )


class TokenStore:
    """Random access to the sequences of several store files; keeps the most recently used files open."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._open: OrderedDict[int, list[_MappedBatch]] = OrderedDict()

    def tokens(self, file: int, index: int) -> tuple[TokenArray, MaskArray]:
        """Return ids and token-aligned mask of one sequence, without copying.

        Args:
            file: position in the list of store files.
            index: 0-based position of the sequence in that file.
        """
        for batch in self._batches(file):
            if index < batch.num_sequences:
                return batch.tokens(index)
            index -= batch.num_sequences
        raise AssertionError(f"store file {file} has no sequence {index}")

    def _batches(self, file: int) -> list[_MappedBatch]:
        if file in self._open:
            self._open.move_to_end(file)
            return self._open[file]
        reader = pa.ipc.open_file(pa.memory_map(str(self._paths[file])))
        batches = [_MappedBatch(reader.get_batch(index)) for index in range(reader.num_record_batches)]
        self._open[file] = batches
        if len(self._open) > _MAX_OPEN_FILES:
            self._open.popitem(last=False)
        return batches


class _MappedBatch:
    """One record batch as numpy views of the mapped file."""

    def __init__(self, batch: Any) -> None:
        ids, mask = batch.column(INPUT_IDS), batch.column(LOSS_MASK)
        self._offsets: IntArray = np.asarray(ids.offsets, dtype=np.int64)
        self._ids: TokenArray = ids.values.to_numpy()
        self._mask: MaskArray = mask.values.to_numpy()
        self.num_sequences = batch.num_rows

    def tokens(self, index: int) -> tuple[TokenArray, MaskArray]:
        start, stop = self._offsets[index], self._offsets[index + 1]
        return self._ids[start:stop], self._mask[start:stop]


def _record_batch(items: Sequence[StoredSequence]) -> Any:
    lengths = np.fromiter((item.sequence.stored_length for item in items), dtype=np.int32, count=len(items))
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), type=pa.int32())
    ids = np.concatenate([item.sequence.input_ids for item in items])
    mask = np.concatenate([item.sequence.loss_mask for item in items])
    return pa.record_batch(
        [
            pa.ListArray.from_arrays(offsets, pa.array(ids)),
            pa.ListArray.from_arrays(offsets, pa.array(mask)),
            pa.array([item.file_index for item in items], type=pa.int32()),
            pa.array([item.row for item in items], type=pa.int64()),
            pa.array([item.sequence.is_truncated for item in items], type=pa.bool_()),
            pa.array([item.is_validation for item in items], type=pa.bool_()),
        ],
        schema=_SCHEMA,
    )


def _num_trained(batch: Any) -> IntArray:
    """Return trained labels per sequence: ones of the mask without the first token, which is never a label."""
    mask = batch.column(LOSS_MASK)
    offsets = np.asarray(mask.offsets, dtype=np.int64)
    values = mask.values.to_numpy()
    totals = np.concatenate(([0], np.cumsum(values, dtype=np.int64)))
    counts: IntArray = totals[offsets[1:]] - totals[offsets[:-1]] - values[offsets[:-1]]
    return counts


def _column(batches: Sequence[Any], name: str, dtype: Any) -> Any:
    return _joined([batch.column(name).to_numpy(zero_copy_only=False) for batch in batches], dtype)


def _joined(parts: Sequence[Any], dtype: Any) -> Any:
    return np.concatenate(parts).astype(dtype) if parts else np.empty(0, dtype=dtype)
