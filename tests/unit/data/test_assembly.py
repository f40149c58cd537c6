"""From stored sequences to rows, by hand, through token files and through a shard."""

from collections.abc import Sequence as Seq
from pathlib import Path

import numpy as np
import pytest

from bridgepack.data.shards import write
from bridgepack.data.shards.row_groups import iter_row_groups
from bridgepack.data.shards.write import ShardPlan, assemble_rows, write_shard
from bridgepack.data.store.token_file import write_token_file
from bridgepack.records import RowBatch
from tests.support.packed_rows import token_batch

Rows = list[tuple[list[int], list[int], list[int]]]
Stored = tuple[list[int], list[int]]
A = ([11, 12, 13, 2], [0, 0, 1, 1])
B = ([21, 22, 2], [0, 1, 1])
C = ([31, 32], [1, 1])


def _write(path: Path, *sequences: Stored) -> None:
    with write_token_file(path) as writer:
        writer.add(token_batch(sequences), eos_token_id=2)


def _plan(packs: list[list[tuple[int, int, int]]], *, multiple: int, size: int) -> ShardPlan:
    """Return a plan from packs of (token file, index in it, stored length)."""
    flat = np.array([place for pack in packs for place in pack], dtype=np.int64)
    return ShardPlan(
        path=Path("unused"),
        name="training/shard",
        pack_offsets=np.cumsum([0, *map(len, packs)]),
        store_files=flat[:, 0],
        store_indices=flat[:, 1],
        stored_lengths=flat[:, 2],
        pad_seq_to_mult=multiple,
        pad_token_id=2,
        packed_sequence_size=size,
    )


def _rows(batches: Seq[RowBatch]) -> Rows:
    rows = [batch.row(index) for batch in batches for index in range(batch.num_rows)]
    return [(row.input_ids.tolist(), row.loss_mask.tolist(), row.seq_start_id.tolist()) for row in rows]


@pytest.fixture
def tokens(tmp_path: Path) -> list[Path]:
    """Return A, B in the first file and C in the second."""
    _write(tmp_path / "0", A, B)
    _write(tmp_path / "1", C)
    return [tmp_path / "0", tmp_path / "1"]


@pytest.mark.parametrize(
    ("multiple", "size", "packs", "rows"),
    [
        (1, 6, [[(0, 0, 4), (0, 1, 3)]], [([11, 12, 13, 2, 21, 22, 2], [0, 1, 1, 0, 1, 1, 0], [0, 4])]),
        (
            4,
            8,
            [[(0, 0, 4), (0, 1, 3)], [(1, 0, 2)]],
            [
                ([11, 12, 13, 2, 2, 21, 22, 2, 2, 2], [0, 1, 1, 0, 0, 1, 1, 0, 0, 0], [0, 5]),
                ([31, 32, 2, 2, 2], [1, 0, 0, 0, 0], [0]),
            ],
        ),
        (
            2,
            8,
            [[(0, 1, 3), (1, 0, 2), (0, 0, 4)]],
            [([21, 22, 2, 31, 32, 2, 11, 12, 13, 2, 2], [1, 1, 0, 1, 0, 0, 0, 1, 1, 0, 0], [0, 3, 6])],
        ),
    ],
    ids=["worked example", "aligned with EOS", "one needs no padding"],
)
def test_rows_by_hand(
    tokens: list[Path], multiple: int, size: int, packs: list[list[tuple[int, int, int]]], rows: Rows
) -> None:
    (batch,) = assemble_rows(_plan(packs, multiple=multiple, size=size), tokens, rows_per_group=2)

    assert _rows([batch]) == rows
    assert (batch.input_ids.dtype, batch.loss_mask.dtype, batch.seq_start_id.dtype) == (np.int32, np.int8, np.int32)


def test_a_mask_does_not_reach_into_the_sequence_before(tmp_path: Path) -> None:
    _write(tmp_path / "0", ([5, 6], [1, 1]), ([7, 8], [1, 0]))
    plan = _plan([[(0, 0, 2), (0, 1, 2)], [(0, 1, 2)]], multiple=1, size=2)

    (batch,) = assemble_rows(plan, [tmp_path / "0"], rows_per_group=2)

    assert _rows([batch]) == [([5, 6, 7, 8], [1, 0, 0, 0], [0, 2]), ([7, 8], [0, 0], [0])]


def test_batches_do_not_change_rows(tokens: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packs = [[(1, 0, 2)], [(0, 1, 3), (1, 0, 2)], [(0, 0, 4)], [(0, 0, 4), (0, 1, 3)], [(1, 0, 2)]]
    plan = _plan(packs, multiple=1, size=6)
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
