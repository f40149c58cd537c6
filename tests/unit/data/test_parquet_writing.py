"""Shards that any Parquet reader reads: Arrow's own types, whole row groups, nothing but plain values."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from bridgepack.data.shards.write import write_shard
from bridgepack.records import INPUT_IDS, LOSS_MASK, SEQ_START_ID, RowBatch
from tests.support.packed_rows import SCHEMA
from tests.unit.rules.in_memory_artifact import row_batch

Row = dict[str, list[int]]
ROWS: list[Row] = [
    {INPUT_IDS: [5, 6, 7], LOSS_MASK: [1, 0, 0], SEQ_START_ID: [0]},
    {INPUT_IDS: [0, 2**31 - 1], LOSS_MASK: [1, 1], SEQ_START_ID: [0, 1]},
    {INPUT_IDS: list(range(20)), LOSS_MASK: [0, 1] * 10, SEQ_START_ID: [0, 7, 19]},
    {INPUT_IDS: [9], LOSS_MASK: [0], SEQ_START_ID: [0]},
    {INPUT_IDS: [8] * 9, LOSS_MASK: [1] * 4, SEQ_START_ID: [0, 8]},
]


def _batch(rows: list[Row]) -> RowBatch:
    return row_batch([list(row.values()) for row in rows])


def test_wider_integers_give_the_same_bytes(tmp_path: Path) -> None:
    batch = _batch(ROWS)
    wide = {name: getattr(batch, name).astype(np.int64) for name in (INPUT_IDS, LOSS_MASK, SEQ_START_ID)}
    for name, written in (("expected", batch), ("wide", replace(batch, **wide))):
        write_shard(tmp_path / name, iter([written]), packed_sequence_size=4096)

    assert (tmp_path / "wide").read_bytes() == (tmp_path / "expected").read_bytes()


def test_file_without_rows(tmp_path: Path) -> None:
    assert write_shard(tmp_path / "s.parquet", iter(()), packed_sequence_size=4096) == 0

    table = pq.read_table(tmp_path / "s.parquet")
    assert (table.schema, table.num_rows) == (SCHEMA, 0)


def test_a_mask_takes_little_room_and_nothing_is_said_twice(tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(2**31, size=4097).tolist()
    rows: list[Row] = [{INPUT_IDS: ids, LOSS_MASK: [0, 1] * 2048 + [0], SEQ_START_ID: [0, 9]}] * 8
    write_shard(tmp_path / "s.parquet", iter([_batch(rows)]), packed_sequence_size=4096)
    metadata = pq.ParquetFile(tmp_path / "s.parquet").metadata

    columns = [metadata.row_group(0).column(index) for index in range(3)]
    assert {(column.compression, column.is_stats_set, column.has_dictionary_page) for column in columns} == {
        ("ZSTD", False, False)
    }
    assert columns[1].total_compressed_size < 8 * 4097 // 4
    assert columns[2].num_values == 16
    assert metadata.serialized_size < 900
    assert metadata.metadata is None


def test_pyarrow_alone_decides_on_the_bytes(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
sys.modules["zstandard"] = None
from tests.unit.data.test_parquet_writing import ROWS, _batch, write_shard
write_shard(Path({str(tmp_path / "s.parquet")!r}), iter([_batch(ROWS)]), packed_sequence_size=4096)
"""
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert finished.returncode == 0, finished.stderr
    assert pq.read_table(tmp_path / "s.parquet").to_pylist() == ROWS
