"""Writes packed rows as Parquet shards that the host's loader can read fast in random order."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bridgepack.data.files import replaced_when_whole
from bridgepack.data.shards.arrow_numbers import arrow_lists
from bridgepack.records import INPUT_IDS, LOSS_MASK, SEQ_START_ID, RowBatch

SHARD_SUFFIX = ".idx.parquet"
#: The host's sampler shuffles, and its loader decodes a whole row group per row and caches one; a row group also costs
#: about 6 KB of memory per process. Measured optimum: 32k to 64k tokens.
ROW_GROUP_TOKENS = 1 << 15
_INT32_LIST, _INT8_LIST = (pa.list_(pa.field("element", kind)) for kind in (pa.int32(), pa.int8()))
_SCHEMA = pa.schema({INPUT_IDS: _INT32_LIST, LOSS_MASK: _INT8_LIST, SEQ_START_ID: _INT32_LIST})
#: Measured on token ids against plain values with zstd: byte stream split takes 20% less time and 10% more space.
#: Dictionaries, also for the mask, and higher levels take longer for files of the same size.
_ENCODING = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": False,
    "column_encoding": "BYTE_STREAM_SPLIT",
    "write_statistics": False,
    "store_schema": False,
}


def shard_name(index: int, num_shards: int) -> str:
    """Return the file name of a shard: (0, 8) -> `shard-00000-of-00008.idx.parquet`."""
    return f"shard-{index:05d}-of-{num_shards:05d}{SHARD_SUFFIX}"


def rows_per_group(packed_sequence_size: int) -> int:
    """Return the rows per row group: packed_sequence_size 4096 -> 8, 8192 -> 4, 32768 and more -> 1."""
    return max(1, ROW_GROUP_TOKENS // packed_sequence_size)


def write_shard(path: Path, batches: Iterator[RowBatch], *, packed_sequence_size: int) -> int:
    """Return the number of rows of a shard, after writing it atomically.

    The same rows give the same bytes with the same version of pyarrow, whatever the batches: int32 ids and starts,
    int8 mask. Each batch but the last must consist of whole row groups; only one is held in memory.
    """
    group_rows = rows_per_group(packed_sequence_size)
    num_rows = 0
    with (
        replaced_when_whole(path) as temporary,
        temporary.open("wb") as stream,
        pq.ParquetWriter(stream, _SCHEMA, **_ENCODING) as writer,
    ):
        for batch in batches:
            assert num_rows % group_rows == 0
            writer.write_table(_table(batch), row_group_size=group_rows)
            num_rows += batch.num_rows
    return num_rows


def _table(batch: RowBatch) -> Any:
    values = (batch.input_ids, batch.loss_mask, batch.seq_start_id)
    offsets = (batch.token_offsets, batch.mask_offsets, batch.start_offsets)
    arrays = list(map(arrow_lists, values, offsets, _SCHEMA.types))
    return pa.Table.from_arrays(arrays, schema=_SCHEMA)
