"""What a build wrote, and whether two builds wrote the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from bridgepack.data.shards.read import list_shards
from bridgepack.records import INPUT_IDS, ROW_COLUMNS, SEQ_START_ID

_BATCH_ROWS = 512


def describe_packed(folder: Path, *, packed_sequence_size: int) -> dict[str, Any]:
    """Return packs, sequences, runtime tokens, fill_fraction and bytes of a folder of packed Parquet files."""
    num_packs = num_sequences = num_stored_tokens = 0
    for batch in _batches(folder):
        num_packs += batch.num_rows
        num_sequences += len(batch.column(SEQ_START_ID).flatten())
        num_stored_tokens += len(batch.column(INPUT_IDS).flatten())
    num_tokens = num_stored_tokens - num_sequences
    return {
        "num_packs": num_packs,
        "num_sequences": num_sequences,
        "num_tokens": num_tokens,
        "fill_fraction": num_tokens / (num_packs * packed_sequence_size),
        "num_bytes": sum(path.stat().st_size for path in list_shards(folder)),
    }


def has_equal_rows(left: Path, right: Path) -> bool:
    """Say whether two folders hold the same rows in the same order; integer types may differ."""
    return all(_is_equal(_column(left, name), _column(right, name)) for name in ROW_COLUMNS)


def _is_equal(left: tuple[Any, Any], right: tuple[Any, Any]) -> bool:
    return all(np.array_equal(one, other) for one, other in zip(left, right, strict=True))


def _column(folder: Path, name: str) -> tuple[Any, Any]:
    """Return (values, row lengths) of a list column."""
    columns = [batch.column(name) for batch in _batches(folder, [name])]
    values = np.concatenate([column.flatten().to_numpy(zero_copy_only=False) for column in columns])
    return values, np.concatenate([np.diff(np.asarray(column.offsets)) for column in columns])


def _batches(folder: Path, columns: list[str] | None = None) -> Any:
    for path in list_shards(folder):
        yield from pq.ParquetFile(path).iter_batches(batch_size=_BATCH_ROWS, columns=columns)
