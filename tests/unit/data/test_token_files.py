"""Files of tokens: what goes in comes out, and nothing broken is taken for whole."""

from pathlib import Path

import pytest

from bridgepack.data.store import token_file as token_files
from bridgepack.data.store.token_file import check_token_file, read_token_index, token_arrays, write_token_file
from bridgepack.errors import StoreError
from bridgepack.records.sequences import RowDrop
from tests.support.packed_rows import token_batch

EOS = 2
A, B, C = ([11, 12, 13, 2], [0, 0, 1, 1]), ([21, 22, 2], [0, 1, 1]), ([31, 32], [1, 1])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file with A and B, then C, and two drops."""
    with write_token_file(tmp_path / "a.tokens") as writer:
        writer.add(token_batch([A, B], drops=[RowDrop(2, "too_short", "1 token")], num_blank_lines=2), EOS)
        writer.add(token_batch([C], first_row=3), EOS)
        writer.add_dropped_row(RowDrop(5, "too_short", "1 token"))
    return tmp_path / "a.tokens"


def test_tokens_and_index_come_back(path: Path) -> None:
    index = read_token_index(path)
    arrays = token_arrays(path)

    assert arrays.input_ids.tolist() == [*A[0], *B[0], *C[0]]
    assert arrays.loss_mask.tolist() == [*A[1], *B[1], *C[1]]
    assert arrays.offsets.tolist() == [0, 4, 7, 9]
    found = [arrays.sequence(index) for index in (1, 0, 2)]
    assert [(ids.tolist(), mask.tolist()) for ids, mask in found] == [B, A, C]
    assert index.stored_lengths.tolist() == [4, 3, 2]
    assert index.row_offsets.tolist() == [0, 1, 3]
    assert index.num_trained.tolist() == index.num_learned.tolist() == [2, 2, 1]
    assert index.num_context.tolist() == [-1, -1, -1]
    assert (index.drop_rows.tolist(), index.drop_kinds.tolist()) == ([2, 5], [0, 0])
    assert index.kinds == (("too_short", "1 token"),)
    assert (index.num_rows, index.num_blank_lines) == (5, 2)
    check_token_file(path)


def test_file_without_sequences(tmp_path: Path) -> None:
    with write_token_file(tmp_path / "a") as writer:
        writer.add(token_batch([], num_blank_lines=7), EOS)

    assert read_token_index(tmp_path / "a").num_blank_lines == 7
    assert token_arrays(tmp_path / "a").offsets.tolist() == [0]
    check_token_file(tmp_path / "a")


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
    with pytest.raises(StoreError, match="it does not exist"):
        check_token_file(path.with_name("none"))
    monkeypatch.setattr(token_files, "_MARK", b"bptoken9")
    with pytest.raises(StoreError, match="it is truncated, or not a token file of version 3"):
        read_token_index(path)


def test_error_leaves_no_file(tmp_path: Path) -> None:
    def fail() -> None:
        with write_token_file(tmp_path / "a") as writer:
            writer.add(token_batch([A]), EOS)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(tmp_path.iterdir()) == []
