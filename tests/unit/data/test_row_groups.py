"""Row groups of a shard as batches: whole, in ranges, and a large one in pieces; the same rows each time."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bridgepack.data.shards.row_groups import iter_row_groups
from bridgepack.errors import ArtifactError
from bridgepack.records import RowBatch

ROWS = [[*range(10 * row, 10 * row + 1 + row % 4), 2] for row in range(23)]


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    return _write(tmp_path / "a.parquet", row_group_size=4)


@pytest.mark.parametrize("max_tokens", [1, 3, 7, 20, 1000])
def test_every_row_comes_once_in_order(shard: Path, max_tokens: int) -> None:
    batches = list(iter_row_groups(shard, "a", max_tokens=max_tokens))
    assert _rows(batches) == list(enumerate(ROWS))
    assert {batch.shard for batch in batches} == {"a"}


def test_a_range_of_row_groups(shard: Path) -> None:
    batches = list(iter_row_groups(shard, "a", max_tokens=20, row_groups=range(2, 4), first_row=8))
    assert _rows(batches) == list(enumerate(ROWS))[8:16]


def test_a_row_group_that_is_too_large_comes_in_pieces(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.parquet", row_group_size=500)
    batches = list(iter_row_groups(path, "a", max_tokens=20))
    assert _rows(batches) == list(enumerate(ROWS))
    assert len(batches) > 3
    assert max(len(batch.input_ids) for batch in batches) <= 25


def test_a_file_that_was_written_anew_is_read_anew(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.parquet", row_group_size=4)
    assert len(list(iter_row_groups(path, "a", max_tokens=1))) == 23
    path.unlink()
    _write(path, row_group_size=500)
    assert len(list(iter_row_groups(path, "a", max_tokens=1000))) == 1


def test_damage_is_named_with_its_row(shard: Path) -> None:
    footer = pq.read_metadata(shard)
    content = bytearray(shard.read_bytes())
    begin = footer.row_group(3).column(0).data_page_offset
    content[begin : begin + footer.row_group(3).total_byte_size] = bytes(footer.row_group(3).total_byte_size)
    shard.write_bytes(content)
    batches = iter_row_groups(shard, "training/a", max_tokens=1, row_groups=range(2, 6), first_row=8)
    with pytest.raises(ArtifactError, match=r"^training/a cannot be read from row 12: "):
        list(batches)


def _write(path: Path, *, row_group_size: int) -> Path:
    columns = {"input_ids": ROWS, "loss_mask": [[0] * len(row) for row in ROWS], "seq_start_id": [[0] for _ in ROWS]}
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
    return path


def _rows(batches: list[RowBatch]) -> list[tuple[int, list[int]]]:
    return [
        (batch.first_row + index, np.asarray(batch.row(index).input_ids).tolist())
        for batch in batches
        for index in range(batch.num_rows)
    ]
