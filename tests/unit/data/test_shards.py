"""Shards as the host's loader wants them, and what is said of broken ones."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bridgepack.data.shards.row_groups import iter_row_groups, read_shard_facts, read_shard_row
from bridgepack.data.shards.write import rows_per_group, shard_name, write_shard
from bridgepack.errors import ArtifactError
from bridgepack.records import RowBatch
from tests.unit.rules.in_memory_artifact import row_batch


def _batch(*rows: list[int]) -> RowBatch:
    """Return rows of one sequence each, all trained but for the last token."""
    return row_batch([[row, [1] * (len(row) - 1) + [0], [0]] for row in rows])


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """Return a shard of four rows in two row groups."""
    path = tmp_path / "s.idx.parquet"
    write_shard(path, iter([_batch([5, 6, 7], [8, 9], [3, 4], [1, 2, 3, 4])]), packed_sequence_size=1 << 14)
    return path


@pytest.mark.parametrize(
    ("packed_sequence_size", "rows"), [(16, 2048), (4096, 8), (8192, 4), (32768, 1), (32769, 1), (2**31 - 1, 1)]
)
def test_row_groups_hold_about_as_many_tokens_whatever_the_size(packed_sequence_size: int, rows: int) -> None:
    assert rows_per_group(packed_sequence_size) == rows


def test_shards_are_named_so_that_they_sort() -> None:
    assert shard_name(0, 8) == "shard-00000-of-00008.idx.parquet"
    names = [shard_name(index, 12) for index in range(12)]

    assert sorted(names) == names


def test_columns_are_those_the_host_reads(shard: Path) -> None:
    facts = read_shard_facts(shard, "s", None)

    assert facts.columns == {
        "input_ids": "list<element: int32>",
        "loss_mask": "list<element: int8>",
        "seq_start_id": "list<element: int32>",
    }
    assert (facts.num_rows, facts.row_group_rows, facts.row_group_tokens) == (4, (2, 2), (5, 6))
    assert facts.num_bytes == shard.stat().st_size
    assert [path.name for path in shard.parent.iterdir()] == [shard.name]


def test_same_rows_give_the_same_bytes(shard: Path) -> None:
    again = shard.with_name("again.idx.parquet")
    batches = [_batch([5, 6, 7], [8, 9]), _batch([3, 4], [1, 2, 3, 4])]

    write_shard(again, iter(batches), packed_sequence_size=1 << 14)

    assert again.read_bytes() == shard.read_bytes()


@pytest.mark.parametrize(("index", "ids"), [(0, [5, 6, 7]), (1, [8, 9]), (2, [3, 4]), (3, [1, 2, 3, 4])])
def test_row(shard: Path, index: int, ids: list[int]) -> None:
    row = read_shard_row(shard, "s", index)

    assert row.input_ids.tolist() == ids
    assert row.loss_mask.tolist() == [1] * (len(ids) - 1) + [0]
    assert row.seq_start_id.tolist() == [0]


def test_row_that_is_not_there(shard: Path) -> None:
    with pytest.raises(ArtifactError, match="s has 4 rows, so there is no row 4"):
        read_shard_row(shard, "s", 4)


def test_nothing_is_left_of_a_shard_that_fails(tmp_path: Path) -> None:
    def batches() -> Any:
        yield _batch([5, 6, 7], [8, 9])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shard(tmp_path / "s.idx.parquet", batches(), packed_sequence_size=1 << 14)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("num_bytes", [0, 3, 100])
def test_shard_that_is_cut_off(shard: Path, num_bytes: int) -> None:
    shard.write_bytes(shard.read_bytes()[:num_bytes])

    assert read_shard_facts(shard, "s", None).read_error
    with pytest.raises(ArtifactError, match=r"^s cannot be read from row 0: "):
        list(iter_row_groups(shard, "s", max_tokens=10))
    with pytest.raises(ArtifactError, match=r"^s row 0 cannot be read: "):
        read_shard_row(shard, "s", 0)


def test_shard_that_is_not_there(tmp_path: Path) -> None:
    facts = read_shard_facts(tmp_path / "none", "none", None)

    assert (facts.exists, facts.num_rows, facts.read_error) == (False, None, None)
    with pytest.raises(ArtifactError, match=r"^none cannot be read from row 0: "):
        list(iter_row_groups(tmp_path / "none", "none", max_tokens=10))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"input_ids": [[1, 2]], "loss_mask": [[1, 0]]}, "s cannot be read from row 0: "),
        (
            {"input_ids": [1], "loss_mask": [[1]], "seq_start_id": [[0]]},
            "column input_ids is int64; it must be a list",
        ),
        ({"input_ids": [[1, None]], "loss_mask": [[1, 0]], "seq_start_id": [[0]]}, "s: column input_ids has a null"),
        ({"input_ids": [[1, 2], None], "loss_mask": [[1, 0]] * 2, "seq_start_id": [[0]] * 2}, "input_ids has a null"),
    ],
)
def test_shard_of_another_shape(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    path = tmp_path / "s.idx.parquet"
    pq.write_table(pa.table(columns), path)

    with pytest.raises(ArtifactError, match=message):
        list(iter_row_groups(path, "s", max_tokens=10))


def test_large_lists_of_wide_integers_are_read(tmp_path: Path) -> None:
    path = tmp_path / "s.idx.parquet"
    lists = {name: pa.array([[1, 0], [2, 0, 0]], pa.large_list(pa.int64())) for name in ("input_ids", "loss_mask")}
    pq.write_table(pa.table({**lists, "seq_start_id": pa.array([[0], [0]], pa.large_list(pa.uint16()))}), path)

    (batch,) = iter_row_groups(path, "s", max_tokens=10)

    assert batch.input_ids.tolist() == [1, 0, 2, 0, 0]
    assert batch.row(1).loss_mask.tolist() == [2, 0, 0]
