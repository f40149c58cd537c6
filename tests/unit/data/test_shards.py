"""Shards as the host's loader wants them, made of sequences, read in batches, and what is said of broken ones."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bridgepack.data.shards import write
from bridgepack.data.shards.row_groups import (
    arrow_text,
    iter_row_groups,
    numpy_array,
    read_shard_facts,
    read_shard_rows,
)
from bridgepack.data.shards.write import ShardPlan, assemble_rows, rows_per_group, write_shard
from bridgepack.data.store.token_file import write_token_file
from bridgepack.errors import ArtifactError
from bridgepack.records import RowBatch
from tests.support.packed_rows import token_batch
from tests.unit.rules.in_memory_artifact import row_batch

ROWS = [[*range(10 * row, 10 * row + 1 + row % 4), 2] for row in range(23)]
EXPECTED = [(index, row, [0] * len(row), [0]) for index, row in enumerate(ROWS)]


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


def test_wider_integers_give_the_same_bytes(tmp_path: Path) -> None:
    batch = _batch(*ROWS)
    names = ("input_ids", "loss_mask", "seq_start_id")
    wide = replace(batch, **{name: getattr(batch, name).astype(np.int64) for name in names})
    for name, written in (("expected", batch), ("wide", wide)):
        write_shard(tmp_path / name, iter([written]), packed_sequence_size=4096)

    assert (tmp_path / "wide").read_bytes() == (tmp_path / "expected").read_bytes()


def test_a_mask_takes_little_room_and_nothing_is_said_twice(tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(2**31, size=4097).tolist()
    rows = row_batch([[ids, [0, 1] * 2048 + [0], [0, 9]]] * 8)
    write_shard(tmp_path / "s.parquet", iter([rows]), packed_sequence_size=4096)
    metadata = pq.ParquetFile(tmp_path / "s.parquet").metadata

    columns = [metadata.row_group(0).column(index) for index in range(3)]
    assert {(column.compression, column.is_stats_set, column.has_dictionary_page) for column in columns} == {
        ("ZSTD", False, False)
    }
    assert columns[1].total_compressed_size < 8 * 4097 // 4
    assert columns[2].num_values == 16
    assert metadata.serialized_size < 900
    assert metadata.metadata is None


def test_single_rows(shard: Path) -> None:
    for index, ids in enumerate([[5, 6, 7], [8, 9], [3, 4], [1, 2, 3, 4]]):
        row = read_shard_rows(shard, "s", [index])[index]
        mask = [1] * (len(ids) - 1) + [0]
        assert (row.input_ids.tolist(), row.loss_mask.tolist(), row.seq_start_id.tolist()) == (ids, mask, [0])
    with pytest.raises(ArtifactError, match="s has 4 packs, so pack 4 does not exist"):
        read_shard_rows(shard, "s", [1, 4])


def test_nothing_is_left_of_a_shard_that_fails(tmp_path: Path) -> None:
    def batches() -> Any:
        yield _batch([5, 6, 7], [8, 9])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shard(tmp_path / "s.idx.parquet", batches(), packed_sequence_size=1 << 14)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("num_bytes", [None, 0, 3, 100])
def test_shard_that_is_cut_off_or_not_there(shard: Path, num_bytes: int | None) -> None:
    content = shard.read_bytes()[:num_bytes]
    shard.unlink()
    if num_bytes is not None:
        shard.write_bytes(content)

    facts = read_shard_facts(shard, "s")

    assert facts.exists == bool(facts.read_error) == (num_bytes is not None)
    assert facts.num_rows is None
    with pytest.raises(ArtifactError, match=r"^s cannot be read .*pack 0 .*: "):
        list(iter_row_groups(shard, "s", max_tokens=10))
    with pytest.raises(ArtifactError, match=r"^s pack 0 cannot be read: "):
        read_shard_rows(shard, "s", [0])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"input_ids": [[1, 2]], "loss_mask": [[1, 0]]}, "be read from pack 0 on"),
        ({"input_ids": [1], "loss_mask": [[1]], "seq_start_id": [[0]]}, "input_ids is int64"),
        ({"input_ids": [[1, None]], "loss_mask": [[1, 0]], "seq_start_id": [[0]]}, "s: column input_ids has a null"),
        ({"input_ids": [[1, 2], None], "loss_mask": [[1, 0]] * 2, "seq_start_id": [[0]] * 2}, "input_ids has a null"),
    ],
)
def test_shard_of_another_shape(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    path = tmp_path / "s.idx.parquet"
    pq.write_table(pa.table(columns), path)

    with pytest.raises(ArtifactError, match=message):
        list(iter_row_groups(path, "s", max_tokens=10))


@pytest.mark.parametrize("max_tokens", [1, 3, 7, 20, 1000])
def test_every_row_comes_once_in_order_and_large_row_groups_come_in_pieces(tmp_path: Path, max_tokens: int) -> None:
    """Each file is written over the one before, which was read."""
    path = tmp_path / "a.parquet"
    for row_group_size in (4, 500):
        _write(path, row_group_size=row_group_size)
        batches = list(iter_row_groups(path, "a", max_tokens=max_tokens))
        assert _rows(batches) == EXPECTED
        assert {batch.shard for batch in batches} == {"a"}
        assert max(len(batch.input_ids) for batch in batches) <= max_tokens + 5
    assert max_tokens < 1000 or len(batches) == 1


def test_row_groups_without_rows_do_not_cut_batches(tmp_path: Path) -> None:
    table = pa.table({"input_ids": [[1, 2], [3, 4]], "loss_mask": [[1, 0]] * 2, "seq_start_id": [[0]] * 2})
    path = tmp_path / "a.parquet"
    with pq.ParquetWriter(path, table.schema) as writer:
        for part in (table, table.slice(0, 0), table):
            writer.write_table(part)
    assert pq.ParquetFile(path).metadata.num_row_groups == 3

    assert [batch.num_rows for batch in iter_row_groups(path, "a", max_tokens=8)] == [4]


def test_a_range_of_row_groups_and_damage_in_one(tmp_path: Path) -> None:
    shard = tmp_path / "a.parquet"
    _write(shard, row_group_size=4)
    batches = list(iter_row_groups(shard, "a", max_tokens=20, row_groups=range(2, 4), first_row=8))
    assert _rows(batches) == EXPECTED[8:16]
    damaged = pq.read_metadata(shard).row_group(3)
    content = bytearray(shard.read_bytes())
    begin = damaged.column(0).data_page_offset
    content[begin : begin + damaged.total_byte_size] = bytes(damaged.total_byte_size)
    shard.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"^training/a cannot be read .*pack 12 .*: "):
        list(iter_row_groups(shard, "training/a", max_tokens=1, row_groups=range(2, 6), first_row=8))


def _write(path: Path, *, row_group_size: int) -> None:
    columns = {"input_ids": ROWS, "loss_mask": [[0] * len(row) for row in ROWS], "seq_start_id": [[0] for _ in ROWS]}
    path.unlink(missing_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size)


def _rows(batches: list[RowBatch]) -> list[tuple[int, list[int], list[int], list[int]]]:
    """Return the number, ids, mask and starts of each row."""
    rows = [(batch.first_row + index, batch.row(index)) for batch in batches for index in range(batch.num_rows)]
    return [(number, row.input_ids.tolist(), row.loss_mask.tolist(), row.seq_start_id.tolist()) for number, row in rows]


def test_nulls_and_texts() -> None:
    assert np.isnan(numpy_array(pa.array([1, None, 3]))).tolist() == [False, True, False]
    assert numpy_array(pa.array(["a", "b"])).tolist() == ["a", "b"]
    assert arrow_text("für 你").equals(pa.array(["für 你"]))


def test_pandas_is_not_imported(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    program = (
        "import sys; from pathlib import Path; from bridgepack.data.store.token_file import *; "
        "path = Path(sys.argv[1])\n"
        "with write_token_file(path) as writer: writer.add_dropped_row(RowNote(0, 'bad_row', 'x'))\n"
        "assert read_token_index(path).kinds == (('bad_row', 'x'),); assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "a.tokens")], check=True)


A = ([11, 12, 13, 2], [0, 0, 1, 1])
B = ([21, 22, 2], [0, 1, 1])
C = ([31, 32], [1, 1])


def test_batches_do_not_change_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A and B lie in the first file of tokens, C in the second; packs have (file, index in it, stored length)."""
    tokens = [tmp_path / "0", tmp_path / "1"]
    for path, sequences in zip(tokens, ([A, B], [C]), strict=True):
        with write_token_file(path) as writer:
            writer.add(token_batch(sequences), eos_token_id=2)
    packs = [[(1, 0, 2)], [(0, 1, 3), (1, 0, 2)], [(0, 0, 4)], [(0, 0, 4), (0, 1, 3)], [(1, 0, 2)]]
    flat = np.array([place for pack in packs for place in pack], dtype=np.int64)
    plan = ShardPlan(
        path=Path("unused"),
        name="training/shard",
        pack_offsets=np.cumsum([0, *map(len, packs)]),
        **{name: flat[:, index] for index, name in enumerate(("store_files", "store_indices", "stored_lengths"))},
        **{"pad_seq_to_mult": 1, "pad_token_id": 2, "packed_sequence_size": 6, "masks_after_eos": False},
    )
    whole = list(assemble_rows(plan, tokens, rows_per_group=2))
    monkeypatch.setattr(write, "_BATCH_TOKENS", 1)
    parts = list(assemble_rows(plan, tokens, rows_per_group=2))

    assert [batch.num_rows for batch in whole] == [5]
    assert [(batch.first_row, batch.num_rows) for batch in parts] == [(0, 2), (2, 2), (4, 1)]
    assert _rows(parts) == _rows(whole)
    path = tmp_path / "shard.idx.parquet"
    assert write_shard(path, iter(parts), packed_sequence_size=1 << 14) == 5
    assert _rows(list(iter_row_groups(path, "shard", max_tokens=1))) == _rows(whole)
    assert _rows(list(iter_row_groups(path, "shard", max_tokens=1 << 20))) == _rows(whole)
