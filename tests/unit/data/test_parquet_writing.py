"""Files that any Parquet reader reads as if Arrow had written them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bridgepack.data.shards import parquet_columns
from bridgepack.data.shards.parquet_writing import row_group_writer
from bridgepack.records import INPUT_IDS, LOSS_MASK, SEQ_START_ID, RowBatch
from tests.support.packed_rows import SCHEMA

Row = dict[str, list[int]]
ROWS: list[Row] = [
    {INPUT_IDS: [5, 6, 7], LOSS_MASK: [1, 0, 0], SEQ_START_ID: [0]},
    {INPUT_IDS: [0, 2**31 - 1], LOSS_MASK: [1, 1], SEQ_START_ID: [0, 1]},
    {INPUT_IDS: list(range(20)), LOSS_MASK: [0, 1] * 10, SEQ_START_ID: [0, 7, 19]},
    {INPUT_IDS: [9], LOSS_MASK: [0], SEQ_START_ID: [0]},
    {INPUT_IDS: [8] * 9, LOSS_MASK: [1] * 9, SEQ_START_ID: [0, 8]},
]


def _batch(rows: list[Row], dtype: Any = np.int32) -> RowBatch:
    def flat(name: str) -> tuple[Any, Any]:
        values = np.array([value for row in rows for value in row[name]], dtype=dtype)
        return values, np.cumsum([0, *(len(row[name]) for row in rows)])

    ids, token_offsets = flat(INPUT_IDS)
    mask, mask_offsets = flat(LOSS_MASK)
    starts, start_offsets = flat(SEQ_START_ID)
    return RowBatch(
        shard="s",
        first_row=0,
        input_ids=ids,
        token_offsets=token_offsets,
        loss_mask=mask,
        mask_offsets=mask_offsets,
        seq_start_id=starts,
        start_offsets=start_offsets,
    )


def _write(path: Path, rows: list[Row], *, rows_per_group: int, rows_per_batch: int | None = None) -> Path:
    with row_group_writer(path) as writer:
        for first in range(0, len(rows), rows_per_batch or max(len(rows), 1)):
            writer.add(_batch(rows[first : first + (rows_per_batch or len(rows))]), rows_per_group=rows_per_group)
    assert writer.num_rows == len(rows)
    return path


@pytest.mark.parametrize("rows_per_group", [1, 2, 5, 9])
def test_arrow_reads_the_rows_and_its_own_types(tmp_path: Path, rows_per_group: int) -> None:
    path = _write(tmp_path / "s.parquet", ROWS, rows_per_group=rows_per_group)

    assert pq.read_table(path).equals(pa.Table.from_pylist(ROWS, schema=SCHEMA))
    file = pq.ParquetFile(path)
    assert [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)] == [
        min(rows_per_group, 5 - first) for first in range(0, 5, rows_per_group)
    ]
    assert [row for batch in file.iter_batches(batch_size=2) for row in batch.to_pylist()] == ROWS


@pytest.mark.parametrize("page_values", [1, 2, 3, 8, 21, 35])
def test_lists_go_on_from_page_to_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page_values: int) -> None:
    monkeypatch.setattr(parquet_columns, "PAGE_VALUES", page_values)
    path = _write(tmp_path / "s.parquet", ROWS, rows_per_group=3)

    assert pq.read_table(path).to_pylist() == ROWS


def test_batches_of_whole_row_groups_change_no_byte(tmp_path: Path) -> None:
    whole = _write(tmp_path / "whole.parquet", ROWS, rows_per_group=2)
    parts = _write(tmp_path / "parts.parquet", ROWS, rows_per_group=2, rows_per_batch=2)

    assert whole.read_bytes() == parts.read_bytes()


def test_wider_integers_give_the_same_bytes(tmp_path: Path) -> None:
    expected = _write(tmp_path / "expected.parquet", ROWS, rows_per_group=2)
    with row_group_writer(tmp_path / "wide.parquet") as writer:
        writer.add(_batch(ROWS, dtype=np.int64), rows_per_group=2)

    assert (tmp_path / "wide.parquet").read_bytes() == expected.read_bytes()


def test_masks_of_another_length_than_ids_are_kept(tmp_path: Path) -> None:
    rows: list[Row] = [{INPUT_IDS: [1, 2, 3], LOSS_MASK: [1], SEQ_START_ID: [0]}]

    assert pq.read_table(_write(tmp_path / "s.parquet", rows, rows_per_group=1)).to_pylist() == rows


def test_file_without_rows(tmp_path: Path) -> None:
    table = pq.read_table(_write(tmp_path / "s.parquet", [], rows_per_group=8))

    assert (table.schema, table.num_rows) == (SCHEMA, 0)


def test_ids_are_plain_and_masks_bits(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows: list[Row] = [
        {INPUT_IDS: rng.integers(2**31, size=4097).tolist(), LOSS_MASK: [0, 1] * 2048 + [0], SEQ_START_ID: [0, 9]}
    ] * 8
    metadata = pq.ParquetFile(_write(tmp_path / "s.parquet", rows, rows_per_group=8)).metadata

    ids, mask, starts = (metadata.row_group(0).column(index) for index in range(3))
    assert (ids.compression, ids.encodings, ids.has_dictionary_page) == ("ZSTD", ("PLAIN", "RLE"), False)
    assert (mask.encodings, mask.has_dictionary_page) == (("PLAIN", "RLE", "RLE_DICTIONARY"), True)
    assert ids.total_uncompressed_size < 4 * 8 * 4097 + 200
    assert mask.total_uncompressed_size < 8 * 4097 // 8 + 200
    assert starts.num_values == 16
    assert not ids.is_stats_set
    assert metadata.serialized_size < 600
    assert metadata.created_by == "bridgepack"
