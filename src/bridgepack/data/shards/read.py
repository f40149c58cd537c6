"""Reads single rows and the footers of Parquet shards, and finds them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bridgepack.data.shards.row_groups import batch_of_table, one_line, tokens_in
from bridgepack.data.shards.write import SHARD_SUFFIX
from bridgepack.errors import ArtifactError
from bridgepack.records import PackedRow, ShardFacts


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
                    return batch_of_table(file.read_row_group(group), name, first_row).row(index - first_row)
                first_row += num_rows
    except (pa.ArrowException, OSError, KeyError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{name} row {index} cannot be read: {one_line(error).rstrip('.')}.") from None
    raise ArtifactError(f"{name} has {first_row} rows, so there is no row {index}. Build the artifact again.")


def read_shard_facts(path: Path, name: str, sha256: str | None) -> ShardFacts:
    """Return what a shard's footer says; a broken file is a fact, not an error."""
    if not path.is_file():
        return ShardFacts(path=name, exists=False)
    num_bytes = path.stat().st_size
    try:
        with pq.ParquetFile(path) as file:
            metadata, schema = file.metadata, file.schema_arrow
        groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
        tokens = tuple(tokens_in(group) for group in groups)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        return ShardFacts(path=name, exists=True, num_bytes=num_bytes, sha256=sha256, read_error=one_line(error))
    return ShardFacts(
        path=name,
        exists=True,
        num_bytes=num_bytes,
        sha256=sha256,
        columns={field.name: str(field.type) for field in schema},
        num_rows=metadata.num_rows,
        row_group_rows=tuple(group.num_rows for group in groups),
        row_group_tokens=tokens,
    )


def list_shards(folder: Path) -> Sequence[Path]:
    """Return the Parquet files right below a folder that the host's loader would take, sorted."""
    return sorted(path for path in folder.glob("*") if path.name.endswith((SHARD_SUFFIX, ".idx.pq")))
