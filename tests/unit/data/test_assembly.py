"""From stored sequences to rows, by hand, through the token store and through a shard."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from pathlib import Path

import numpy as np
import pytest

from bridgepack.data import assembly, token_store
from bridgepack.data.assembly import ShardPlan, assemble_rows
from bridgepack.data.shards import iter_shard_batches, write_shard
from bridgepack.data.token_store import StoredSequence, TokenStore, read_store_index, write_store_file
from bridgepack.records import RowBatch, Sequence

Rows = list[tuple[list[int], list[int], list[int]]]
A = ([11, 12, 13, 2], [0, 0, 1, 1])
B = ([21, 22, 2], [0, 1, 1])
C = ([31, 32], [1, 1])


def _stored(ids: Seq[int], mask: Seq[int], row: int, *, is_truncated: bool = False) -> StoredSequence:
    sequence = Sequence(
        input_ids=np.array(ids, dtype=np.int32), loss_mask=np.array(mask, dtype=np.int8), is_truncated=is_truncated
    )
    return StoredSequence(sequence=sequence, file_index=4, row=row, is_validation=row % 2 == 0)


def _plan(packs: list[list[tuple[int, int, int]]], *, multiple: int, size: int) -> ShardPlan:
    """Return a plan from packs of (store file, index in it, stored length)."""
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
def store(tmp_path: Path) -> TokenStore:
    """Return a store with A, B in its first file and C in its second."""
    write_store_file(tmp_path / "0", [_stored(*A, 1), _stored(*B, 2)])
    write_store_file(tmp_path / "1", [_stored(*C, 3)])
    return TokenStore([tmp_path / "0", tmp_path / "1"])


def test_row_of_the_worked_example(store: TokenStore) -> None:
    plan = _plan([[(0, 0, 4), (0, 1, 3)]], multiple=1, size=6)

    (batch,) = assemble_rows(plan, store, rows_per_group=1)

    assert _rows([batch]) == [([11, 12, 13, 2, 21, 22, 2], [0, 1, 1, 0, 1, 1, 0], [0, 4])]
    assert (batch.input_ids.dtype, batch.loss_mask.dtype, batch.seq_start_id.dtype) == (np.int32, np.int8, np.int32)


def test_alignment_pads_each_sequence_with_eos_that_is_not_trained(store: TokenStore) -> None:
    plan = _plan([[(0, 0, 4), (0, 1, 3)], [(1, 0, 2)]], multiple=4, size=8)

    (batch,) = assemble_rows(plan, store, rows_per_group=2)

    assert _rows([batch]) == [
        ([11, 12, 13, 2, 2, 21, 22, 2, 2, 2], [0, 1, 1, 0, 0, 1, 1, 0, 0, 0], [0, 5]),
        ([31, 32, 2, 2, 2], [1, 0, 0, 0, 0], [0]),
    ]


def test_batches_do_not_change_rows(store: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packs = [[(1, 0, 2)], [(0, 1, 3), (1, 0, 2)], [(0, 0, 4)], [(0, 0, 4), (0, 1, 3)], [(1, 0, 2)]]
    plan = _plan(packs, multiple=1, size=6)
    whole = list(assemble_rows(plan, store, rows_per_group=2))
    monkeypatch.setattr(assembly, "_BATCH_TOKENS", 1)
    parts = list(assemble_rows(plan, store, rows_per_group=2))

    assert [batch.num_rows for batch in whole] == [5]
    assert [(batch.first_row, batch.num_rows) for batch in parts] == [(0, 2), (2, 2), (4, 1)]
    assert _rows(parts) == _rows(whole)
    path = tmp_path / "shard.idx.parquet"
    assert write_shard(path, iter(parts), packed_sequence_size=1 << 14) == 5
    assert _rows(list(iter_shard_batches(path, "shard", max_tokens=1))) == _rows(whole)
    assert _rows(list(iter_shard_batches(path, "shard", max_tokens=1 << 20))) == _rows(whole)


def test_store_index_says_lengths_and_origins(tmp_path: Path) -> None:
    items = [_stored(*A, 1), _stored(*B, 2, is_truncated=True), _stored([7, 8, 9], [1, 1, 0], 5)]

    assert write_store_file(tmp_path / "store", items) == 3

    index = read_store_index(tmp_path / "store")
    assert index.stored_lengths.tolist() == [4, 3, 3]
    assert index.num_trained.tolist() == [2, 2, 1]
    assert index.file_indices.tolist() == [4, 4, 4]
    assert index.rows.tolist() == [1, 2, 5]
    assert index.is_truncated.tolist() == [False, True, False]
    assert index.is_validation.tolist() == [False, True, False]


def test_store_without_sequences(tmp_path: Path) -> None:
    assert write_store_file(tmp_path / "store", []) == 0

    index = read_store_index(tmp_path / "store")

    assert [len(getattr(index, name)) for name in index.__slots__] == [0] * 6


def test_sequences_are_found_again_across_batches_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_store, "BATCH_TOKENS", 5)
    monkeypatch.setattr(token_store, "_MAX_OPEN_FILES", 1)
    sequences = [([100 + index] * (2 + index % 3), [index % 2] * (2 + index % 3)) for index in range(11)]
    for file in range(3):
        write_store_file(tmp_path / str(file), [_stored(ids, mask, file) for ids, mask in sequences[file:]])
    store = TokenStore([tmp_path / str(file) for file in range(3)])

    num_checked = 0
    for file in (0, 2, 1, 0):
        assert read_store_index(tmp_path / str(file)).stored_lengths.tolist() == [
            len(ids) for ids, _ in sequences[file:]
        ]
        for index, (ids, mask) in enumerate(sequences[file:]):
            found_ids, found_mask = store.tokens(file, index)
            assert (found_ids.tolist(), found_mask.tolist()) == (ids, mask)
            num_checked += 1
    assert num_checked == 11 + 9 + 10 + 11
