"""Writes packed rows as Parquet shards that the host's loader reads fast in random order, and reads them back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bridgepack.data.files import replaced_when_whole
from bridgepack.errors import ArtifactError
from bridgepack.records import INPUT_IDS, LOSS_MASK, SEQ_START_ID, PackedRow, RowBatch, ShardFacts

SHARD_SUFFIX = ".idx.parquet"
#: The host decodes a whole row group for every row it draws and keeps one, and its sampler shuffles; a row group also
#: costs about 6 KB of memory per process. Measured optimum: 32k to 64k tokens.
ROW_GROUP_TOKENS = 1 << 15
SCHEMA = pa.schema(
    [
        pa.field(INPUT_IDS, pa.list_(pa.int32())),
        pa.field(LOSS_MASK, pa.list_(pa.int8())),
        pa.field(SEQ_START_ID, pa.list_(pa.int32())),
    ]
)


def shard_name(index: int, num_shards: int) -> str:
    """Return a shard's file name: (0, 8) -> `shard-00000-of-00008.idx.parquet`."""
    return f"shard-{index:05d}-of-{num_shards:05d}{SHARD_SUFFIX}"


def rows_per_group(packed_sequence_size: int) -> int:
    """Return how many rows a row group holds: 4096 -> 8, 8192 -> 4, 32768 and longer -> 1."""
    return max(1, ROW_GROUP_TOKENS // packed_sequence_size)


def write_shard(path: Path, batches: Iterator[RowBatch], *, packed_sequence_size: int) -> int:
    """Write one shard and return its number of rows; the file appears under its name when it is whole.

    The same rows give the same bytes. int32 ids, plain and zstd-compressed; int8 mask, run-length coded.
    """
    group_rows = rows_per_group(packed_sequence_size)
    num_rows = 0
    with (
        replaced_when_whole(path) as temporary,
        pq.ParquetWriter(
            temporary,
            SCHEMA,
            compression="zstd",
            use_dictionary=[f"{LOSS_MASK}.list.element"],
            write_statistics=False,
            store_schema=False,
        ) as writer,
    ):
        for batch in batches:
            assert batch.num_rows % group_rows == 0 or num_rows % group_rows == 0
            writer.write_table(_table(batch), row_group_size=group_rows)
            num_rows += batch.num_rows
    return num_rows


def iter_shard_batches(path: Path, name: str, *, max_tokens: int) -> Iterator[RowBatch]:
    """Yield a shard's rows in order, whole row groups at a time, about `max_tokens` tokens each.

    Args:
        path: of the file.
        name: what the batches call it.
        max_tokens: bound on the stored tokens of a batch; a single row group may exceed it.

    Raises:
        ArtifactError: when the shard cannot be read to its end, or a row or an element of it is null.
    """
    first_row = 0
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            for groups in _groups_within(file.metadata, max_tokens):
                columns = [INPUT_IDS, LOSS_MASK, SEQ_START_ID]
                table = file.read_row_groups(groups, columns=columns, use_threads=False)
                yield _batch(table, name, first_row)
                first_row += table.num_rows
    except (pa.ArrowException, OSError, KeyError) as error:
        raise ArtifactError(f"{name} cannot be read from row {first_row}: {_one_line(error)}.") from None


def read_shard_row(path: Path, name: str, index: int) -> PackedRow:
    """Return one row by its 0-based position in the shard, decoding only its row group.

    Raises:
        ArtifactError: when the shard cannot be read or has no such row.
    """
    first_row = 0
    try:
        with pq.ParquetFile(path) as file:
            for group in range(file.metadata.num_row_groups):
                num_rows = file.metadata.row_group(group).num_rows
                if index < first_row + num_rows:
                    return _batch(file.read_row_group(group), name, first_row).row(index - first_row)
                first_row += num_rows
    except (pa.ArrowException, OSError, KeyError) as error:
        raise ArtifactError(f"{name} row {index} cannot be read: {_one_line(error)}.") from None
    raise ArtifactError(f"{name} has {first_row} rows, so there is no row {index}. Build the artifact again.")


def read_shard_facts(path: Path, name: str, sha256: str | None) -> ShardFacts:
    """Return what a shard's footer says; a broken file is a fact, not an error."""
    if not path.is_file():
        return ShardFacts(path=name, exists=False)
    num_bytes = path.stat().st_size
    try:
        with pq.ParquetFile(path) as file:
            metadata, schema = file.metadata, file.schema_arrow
    except (pa.ArrowException, OSError) as error:
        return ShardFacts(path=name, exists=True, num_bytes=num_bytes, sha256=sha256, read_error=_one_line(error))
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    return ShardFacts(
        path=name,
        exists=True,
        num_bytes=num_bytes,
        sha256=sha256,
        columns={field.name: str(field.type) for field in schema},
        num_rows=metadata.num_rows,
        row_group_rows=tuple(group.num_rows for group in groups),
        row_group_tokens=tuple(_tokens_in(group) for group in groups),
    )


def _table(batch: RowBatch) -> Any:
    columns = [
        pa.ListArray.from_arrays(pa.array(offsets, type=pa.int32()), pa.array(values, type=element))
        for values, offsets, element in (
            (batch.input_ids, batch.token_offsets, pa.int32()),
            (batch.loss_mask, batch.mask_offsets, pa.int8()),
            (batch.seq_start_id, batch.start_offsets, pa.int32()),
        )
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _batch(table: Any, name: str, first_row: int) -> RowBatch:
    ids, token_offsets = _flat(table, INPUT_IDS, name)
    mask, mask_offsets = _flat(table, LOSS_MASK, name)
    starts, start_offsets = _flat(table, SEQ_START_ID, name)
    return RowBatch(
        shard=name,
        first_row=first_row,
        input_ids=ids,
        token_offsets=token_offsets,
        loss_mask=mask,
        mask_offsets=mask_offsets,
        seq_start_id=starts,
        start_offsets=start_offsets,
    )


def _flat(table: Any, column: str, name: str) -> tuple[Any, Any]:
    """Return (values, int64 offsets) of a list column as numpy arrays.

    Raises:
        ArtifactError: when a row or an element is null, or it is no list column.
    """
    array = table.column(column).combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], type=array.type)
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        raise ArtifactError(f"{name}: column {column} is {array.type}; it must be a list.")
    values = array.flatten()
    if array.null_count or values.null_count:
        raise ArtifactError(f"{name}: column {column} has a null; the host cannot read it.")
    offsets = np.asarray(array.offsets, dtype=np.int64)
    return values.to_numpy(zero_copy_only=False), offsets - offsets[0]


def _groups_within(metadata: Any, max_tokens: int) -> Iterator[list[int]]:
    groups: list[int] = []
    num_tokens = 0
    for index in range(metadata.num_row_groups):
        size = _tokens_in(metadata.row_group(index))
        if groups and num_tokens + size > max_tokens:
            yield groups
            groups, num_tokens = [], 0
        groups.append(index)
        num_tokens += size
    if groups:
        yield groups


def _tokens_in(group: Any) -> int:
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema.split(".")[0] == INPUT_IDS:
            return int(column.num_values)
    return 0


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def list_shards(folder: Path) -> Sequence[Path]:
    """Return the Parquet files right below a folder that the host's loader would take, sorted."""
    return sorted(path for path in folder.glob("*") if path.name.endswith((SHARD_SUFFIX, ".idx.pq")))
