"""Files of tokens: what goes in comes out, and nothing broken is taken for whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bridgepack.data.store import token_file as token_files
from bridgepack.data.store.token_file import (
    TokenFiles,
    TokenFileWriter,
    check_token_file,
    count_tokens,
    read_token_index,
    write_token_file,
)
from bridgepack.errors import StoreError

Sequences = list[tuple[list[int], list[int]]]
A, B, C = ([11, 12, 13, 2], [0, 0, 1, 1]), ([21, 22, 2], [0, 1, 1]), ([31, 32], [1, 1])


def _add(writer: TokenFileWriter, sequences: Sequences, first_row: int) -> None:
    lengths = np.array([len(ids) for ids, _ in sequences], dtype=np.int64)
    counts = np.array([sum(mask[1:]) for _, mask in sequences], dtype=np.int64)
    writer.add_sequences(
        np.array([token for ids, _ in sequences for token in ids], dtype=np.int32),
        np.array([bit for _, mask in sequences for bit in mask], dtype=np.int8),
        stored_lengths=lengths,
        row_offsets=np.arange(first_row, first_row + len(sequences)),
        num_trained=counts,
        num_learned=counts,
        num_context=np.full(len(sequences), -1),
    )
    writer.add_rows(len(sequences), 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file with A and B, then C, and two drops."""
    with write_token_file(tmp_path / "a.tokens") as writer:
        _add(writer, [A, B], 0)
        writer.add_drops([(2, "too_short", "1 token"), (5, "too_short", "1 token")])
        _add(writer, [C], 3)
    return tmp_path / "a.tokens"


def test_tokens_and_index_come_back(path: Path) -> None:
    index = read_token_index(path)
    arrays = TokenFiles([path]).arrays(0)

    assert arrays.input_ids.tolist() == [*A[0], *B[0], *C[0]]
    assert arrays.loss_mask.tolist() == [*A[1], *B[1], *C[1]]
    assert arrays.offsets.tolist() == [0, 4, 7, 9]
    assert index.stored_lengths.tolist() == [4, 3, 2]
    assert index.row_offsets.tolist() == [0, 1, 3]
    assert index.num_trained.tolist() == index.num_learned.tolist() == [2, 2, 1]
    assert index.num_context.tolist() == [-1, -1, -1]
    assert (index.drop_rows.tolist(), index.drop_kinds.tolist()) == ([2, 5], [0, 0])
    assert index.kinds == (("too_short", "1 token"),)
    assert (index.num_rows, index.num_blank_lines) == (3, 2)
    assert count_tokens(path) == (3, 9)
    check_token_file(path)


def test_file_without_sequences(tmp_path: Path) -> None:
    with write_token_file(tmp_path / "a") as writer:
        writer.add_rows(0, 7)

    assert read_token_index(tmp_path / "a").num_blank_lines == 7
    assert TokenFiles([tmp_path / "a"]).arrays(0).offsets.tolist() == [0]
    check_token_file(tmp_path / "a")


def test_sequences_are_found_again_across_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_files, "_MAX_OPEN_FILES", 1)
    for number, sequences in enumerate(([A, B], [C], [B, C, A])):
        with write_token_file(tmp_path / str(number)) as writer:
            _add(writer, sequences, 0)
    files = TokenFiles([tmp_path / str(number) for number in range(3)])

    found = [files.tokens(*place) for place in ((2, 0), (0, 0), (1, 0), (2, 2), (0, 1))]

    assert [(ids.tolist(), mask.tolist()) for ids, mask in found] == [B, A, C, A, B]


def test_every_changed_byte_and_every_cut_is_seen(path: Path) -> None:
    whole = path.read_bytes()
    num_checked = 0
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(StoreError, match="cannot be used"):
            check_token_file(path)
        path.write_bytes(whole[:place])
        with pytest.raises(StoreError, match="cannot be used"):
            read_token_index(path)
        num_checked += 1
    path.write_bytes(whole)
    check_token_file(path)
    assert num_checked > 50


def test_file_that_is_not_there_and_one_of_another_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreError, match="it is not there"):
        check_token_file(path.with_name("none"))
    monkeypatch.setattr(token_files, "_MARK", b"bptoken9")
    with pytest.raises(StoreError, match="it is cut off, or no token file of version 2"):
        read_token_index(path)


def test_error_leaves_no_file(tmp_path: Path) -> None:
    def fail() -> None:
        with write_token_file(tmp_path / "a") as writer:
            _add(writer, [A], 0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(tmp_path.iterdir()) == []
