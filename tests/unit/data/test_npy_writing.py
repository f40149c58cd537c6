"""`.npy` files written row after row are those that numpy writes at once, to every reader."""

import io
import pickletools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridgepack.data.shards.npy import write_npy_rows
from bridgepack.records import RowBatch
from tests.unit.rules.in_memory_artifact import row_batch

Row = dict[str, list[int]]

ROWS: list[Row] = [
    {"input_ids": [11, 12, 13, 2, 21, 22, 2], "loss_mask": [0, 1, 1, 0, 1, 1, 0], "seq_start_id": [0, 4]},
    {"input_ids": [31, 150_000, 2], "loss_mask": [1, 1, 0], "seq_start_id": [0]},
    {"input_ids": [255, 256, 65_535, 65_536], "loss_mask": [0, 0, 1, 0], "seq_start_id": [0]},
]


def _batch(rows: list[Row]) -> RowBatch:
    return row_batch([list(row.values()) for row in rows])


def _write(path: Path, parts: list[list[Row]]) -> Path:
    write_npy_rows(path, map(_batch, parts), sum(map(len, parts)))
    return path


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.lists(st.integers(0, 2**31 - 1), min_size=1), min_size=1, max_size=4), max_size=4))
def test_numpy_reads_plain_lists(tmp_path_factory: pytest.TempPathFactory, parts: list[list[list[int]]]) -> None:
    drawn: list[list[Row]] = [
        [{"input_ids": ids, "loss_mask": [token % 2 for token in ids], "seq_start_id": [0]} for ids in part]
        for part in parts
    ]
    rows = [row for part in [ROWS, *drawn] for row in part]

    array = np.load(_write(tmp_path_factory.mktemp("npy") / "s.npy", [ROWS, *drawn]), allow_pickle=True)

    assert (array.dtype, array.shape, list(array)) == (object, (len(rows),), rows)
    assert {type(value) for row in array for values in row.values() for value in values} == {int}


def test_no_name_but_those_of_arrays_is_in_the_pickle(tmp_path: Path) -> None:
    stream = io.BytesIO(_write(tmp_path / "s.npy", [ROWS]).read_bytes())
    np.lib.format.read_magic(stream)
    np.lib.format.read_array_header_1_0(stream)

    names = {argument for opcode, argument, _ in pickletools.genops(stream) if opcode.name == "GLOBAL"}

    assert names == {"numpy.core.multiarray _reconstruct", "numpy ndarray", "numpy dtype"}
