"""Rows in `.npy` object arrays, sound, broken and written; nothing that a pickle asks for is run."""

import io
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridgepack.data.shards.npy import iter_npy_batches, read_npy_facts
from bridgepack.errors import ArtifactError
from bridgepack.records import RowBatch
from tests.support.examples import examples

ROWS: list[dict[str, Any]] = [
    {"input_ids": [11, 12, 2, 21, 22, 23, 2], "loss_mask": [False, True, False, 1, 1.0, 0, 0], "seq_start_id": [0, 3]},
    {"input_ids": [31, 150_000, 2], "loss_mask": [1, 1, 0], "seq_start_id": [0]},
]
INTEGERS = "list<element: int64>"
SOUND_COLUMNS = {"input_ids": INTEGERS, "loss_mask": INTEGERS, "seq_start_id": INTEGERS}
NO_LIMIT = 1 << 20


def _write(path: Path, rows: Any = ROWS) -> Path:
    """Write rows as megatron-bridge 0.3 does."""
    array = np.empty(len(rows), dtype=object)
    array[:] = rows
    np.save(path, array)
    return path


def _changed(**values: Any) -> list[dict[str, Any]]:
    """Return the rows with values of the second replaced."""
    return [ROWS[0], ROWS[1] | values]


def _pickled(payload: bytes) -> bytes:
    """Return a pickle behind the header of an object array."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "|O", "fortran_order": False, "shape": (1,)})
    return stream.getvalue() + payload


def _batches(path: Path, max_tokens: int = NO_LIMIT) -> list[RowBatch]:
    return list(iter_npy_batches(path, "s.npy", max_tokens=max_tokens))


def test_facts_and_rows_of_a_sound_file(tmp_path: Path) -> None:
    path = _write(tmp_path / "s.npy")

    facts = read_npy_facts(path, "s.npy")
    (batch,) = _batches(path)

    assert (facts.path, facts.exists, facts.num_bytes) == ("s.npy", True, path.stat().st_size)
    assert (facts.format, facts.num_rows, facts.columns) == ("npy", 2, SOUND_COLUMNS)
    assert (facts.read_error, facts.layout_error, facts.value_types, facts.forbidden_globals) == (None, None, {}, ())
    assert (batch.shard, batch.first_row, batch.num_rows) == ("s.npy", 0, 2)
    for index, row in enumerate(ROWS):
        assert {name: getattr(batch.row(index), name).tolist() for name in SOUND_COLUMNS} == row
    empty = _write(tmp_path / "empty.npy", [])
    assert (read_npy_facts(empty, "s.npy").num_rows, _batches(empty)) == (0, [])


@pytest.mark.parametrize(("max_tokens", "first_rows"), [(1, [0, 1, 2]), (7, [0, 1]), (6, [0, 1]), (13, [0])])
def test_batches_are_bounded(tmp_path: Path, max_tokens: int, first_rows: list[int]) -> None:
    batches = _batches(_write(tmp_path / "s.npy", [ROWS[0], ROWS[1], ROWS[1]]), max_tokens)

    assert [batch.first_row for batch in batches] == first_rows
    assert sum(batch.num_rows for batch in batches) == 3


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol_that_numpy_writes(tmp_path: Path, protocol: int) -> None:
    array = np.empty(2, dtype=object)
    array[:] = _changed(seq_start_id=np.zeros(1, dtype=np.int32))
    path = tmp_path / "s.npy"
    path.write_bytes(_pickled(pickle.dumps(array, protocol=protocol)))

    facts = read_npy_facts(path, "s.npy")

    if protocol == 5:
        assert facts.forbidden_globals == (f"numpy.{'_core' if hasattr(np, '_core') else 'core'}.numeric._frombuffer",)
    else:
        assert (facts.read_error, facts.value_types) == (None, {"seq_start_id": ("numpy.ndarray",)})
        assert _batches(path)[0].row(1).seq_start_id.tolist() == [0]


@pytest.mark.parametrize(
    ("mask", "value_types"),
    [
        *((np.array([1, 1, 0], dtype=dtype), ("numpy.ndarray",)) for dtype in ("int64", ">i4", "uint8", "bool")),
        ((1, 1, 0), ("tuple",)),
        (list(np.array([1, 1, 0])), None),
    ],
)
def test_arrays_and_tuples_are_named_and_read(tmp_path: Path, mask: Any, value_types: tuple[str, ...] | None) -> None:
    path = _write(tmp_path / "s.npy", _changed(loss_mask=mask))

    facts = read_npy_facts(path, "s.npy")

    assert facts.value_types == ({"loss_mask": value_types} if value_types else {})
    assert (facts.columns, facts.read_error) == (SOUND_COLUMNS, None)
    assert _batches(path)[0].row(1).loss_mask.tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        (_changed(loss_mask=[0.5, float("nan"), 0]), SOUND_COLUMNS | {"loss_mask": "list<element: double>"}),
        (_changed(input_ids=[31.0, 32, 2]), SOUND_COLUMNS | {"input_ids": "list<element: double>"}),
        (_changed(input_ids=["a", 32, 2]), SOUND_COLUMNS | {"input_ids": "list<element: str>"}),
        (_changed(input_ids=[None, 32, 2]), SOUND_COLUMNS | {"input_ids": "list<element: NoneType>"}),
        (_changed(input_ids=[[31], [32], [2]]), SOUND_COLUMNS | {"input_ids": "list<element: list>"}),
        ([ROWS[0], {"input_ids": [31, 2], "seq_start_id": [0]}], {"input_ids": INTEGERS, "seq_start_id": INTEGERS}),
        ([{"tokens": [31, 2]}], {}),
        ([{**row, "weight": 0.5} for row in ROWS], SOUND_COLUMNS),
    ],
)
def test_columns(tmp_path: Path, rows: list[Any], columns: dict[str, str]) -> None:
    path = _write(tmp_path / "s.npy", rows)

    facts = read_npy_facts(path, "s.npy")

    assert (facts.columns, facts.read_error) == (columns, None)
    if columns.get("loss_mask") == "list<element: double>":
        np.testing.assert_array_equal(_batches(path)[0].row(1).loss_mask, rows[1]["loss_mask"])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (_changed(input_ids=[31.5, 32, 2]), "an element of input_ids is not a 64-bit integer"),
        (_changed(input_ids=[2**63, 32, 2]), "an element of input_ids is not a 64-bit integer"),
        (_changed(loss_mask=["a", "b", "c"]), "an element of loss_mask is not a 64-bit integer"),
        ([ROWS[0], {"input_ids": [31, 2], "seq_start_id": [0]}], "pack 1 loss_mask is None"),
    ],
)
def test_rows_that_cannot_be_read(tmp_path: Path, rows: list[Any], message: str) -> None:
    with pytest.raises(ArtifactError, match=f"s.npy cannot be read .*pack 0 .*: {message}."):
        _batches(_write(tmp_path / "s.npy", rows))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.arange(12, dtype=np.float32).reshape(3, 4), "an array of float32, shape (3, 4); Megatron-Bridge needs"),
        (np.array({"input_ids": [1, 2]}), "an array of shape (); Megatron-Bridge needs one dimension"),
        (np.array([[{}, {}]], dtype=object), "an array of shape (1, 2); Megatron-Bridge needs one dimension"),
        (np.array([{}, None], dtype=object), "pack 1 is None"),
        (np.array([{"input_ids": 3}], dtype=object), "pack 0 input_ids is int"),
        (np.array([{"input_ids": {1, 2}}], dtype=object), "pack 0 input_ids is set"),
        (np.array([{"input_ids": np.zeros((1, 2))}], dtype=object), "pack 0 input_ids: an array has shape (1, 2); it"),
        (np.array([{"loss_mask": np.array([None])}], dtype=object), "pack 0 loss_mask: an array of O8 does not hold"),
    ],
)
def test_file_of_another_layout(tmp_path: Path, array: Any, message: str) -> None:
    path = tmp_path / "s.npy"
    np.save(path, array)

    facts = read_npy_facts(path, "s.npy")

    assert facts.layout_error is not None
    assert facts.layout_error.startswith(message)
    assert (facts.read_error, facts.columns, facts.num_rows) == (facts.layout_error, {}, None)


class _RunsOnLoad:
    """Runs a shell command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self._command = command

    def __reduce__(self) -> Any:
        return (os.system, (self._command,))


def test_code_in_a_pickle_is_named_and_not_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    path = _write(tmp_path / "s.npy", [*ROWS, _RunsOnLoad(f"touch {marker}")])

    facts = read_npy_facts(path, "s.npy")
    with pytest.raises(ArtifactError, match=r"pickle imports \w+\.system, .* not run"):
        _batches(path)

    assert facts.forbidden_globals == (f"{os.system.__module__}.system",)
    assert facts.read_error
    assert not marker.exists()
    np.load(path, allow_pickle=True)
    assert marker.exists()


@pytest.mark.parametrize(
    ("payload", "name"),
    [
        (b"ctorch._utils\n_rebuild_tensor_v2\n(tR.", "torch._utils._rebuild_tensor_v2"),
        (b"cbuiltins\neval\n(V1\ntR.", "builtins.eval"),
        (b"c__builtin__\nlist\n.", "__builtin__.list"),
        (b"(ios\nsystem\n.", "os.system"),
        (b"\x80\x04\x8c\x05numpy\x8c\x04load\x93.", "numpy.load"),
        (b"\x80\x04\x8c\x08builtins\x8c\x0dlist.__init__\x93.", "builtins.list.__init__"),
        (b"c_codecs\ndecode\n.", "_codecs.decode"),
    ],
)
def test_names_that_are_not_allowed(tmp_path: Path, payload: bytes, name: str) -> None:
    (tmp_path / "s.npy").write_bytes(_pickled(payload))
    assert read_npy_facts(tmp_path / "s.npy", "s.npy").forbidden_globals == (name,)


ODD_HEADERS = (
    *(b"PK\x03\x04 a zip file", b"\x93NUMPY\x01\x00\xff\xff" + b" " * 65535, b"\x93NUMPY\x02\x00\xff\xff\xff\x7f{}"),
    *(b"\x93NUMPY\x09\x00\x02\x00{}", b"\x93NUMPY\x01\x00\x02\x00((", b"\x93NUMPY\x01\x00\x10\x27" + b"(" * 10_000),
    *(b'\x93NUMPY\x01\x00\x04\x00"\'"\n', b"\x93NUMPY\x01\x00\x02\x00{}"),
)
ODD_PICKLES = (
    *(b"", b"N.", b"]N.", b"0.", b"Pstorage\n.", b"\x80\x05\x8e" + b"\xff" * 7 + b"\x7f" + b"x."),
    *(b"c_codecs\nencode\n(Vx\nVrot13\ntR.", b"cnumpy\ndtype\n(VV8\ntRN.", b"cnumpy\ndtype\n(Vi8\ntRN\x85b."),
    b"cnumpy.core.multiarray\nscalar\n(NNtR.",
    b"cnumpy.core.multiarray\n_reconstruct\n(tR(K\x01NNNNtb.",
    b"cnumpy.core.multiarray\n_reconstruct\n(tR(K\x01K\x02tb.",
)


@pytest.mark.parametrize("content", [*ODD_HEADERS, *map(_pickled, ODD_PICKLES)])
def test_odd_headers_and_pickles_raise_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "s.npy").write_bytes(content)

    facts = read_npy_facts(tmp_path / "s.npy", "s.npy")

    assert facts.read_error
    assert facts.forbidden_globals == ()


@pytest.mark.parametrize("num_bytes", [None, 0, 3, 9, 60, 127, 128, 129, 150, -1])
def test_file_that_is_cut_off_or_not_there(tmp_path: Path, num_bytes: int | None) -> None:
    path = tmp_path / "s.npy"
    if num_bytes is not None:
        path.write_bytes(_write(path).read_bytes()[:num_bytes])

    facts = read_npy_facts(path, "s.npy")

    assert (facts.exists, facts.format, bool(facts.read_error)) == (num_bytes is not None, "npy", num_bytes is not None)
    assert (facts.layout_error, facts.forbidden_globals, facts.num_rows) == (None, (), None)
    with pytest.raises(ArtifactError, match=r"^s.npy cannot be read .*pack 0 .*: "):
        _batches(path)


@examples(3)
@given(position=st.integers(0, 10_000), byte=st.integers(0, 255).filter(lambda byte: byte not in b"rp"))
def test_a_changed_byte_gives_facts_or_rows(tmp_path_factory: pytest.TempPathFactory, position: int, byte: int) -> None:
    path = _write(tmp_path_factory.getbasetemp() / "changed.npy")
    # r and p number a memo entry: a large number makes pickle allocate as large a table.
    content = bytearray(path.read_bytes())
    content[position % len(content)] = byte
    path.write_bytes(content)

    facts = read_npy_facts(path, "s.npy")

    try:
        num_rows = sum(batch.num_rows for batch in iter_npy_batches(path, "s.npy", max_tokens=NO_LIMIT))
    except ArtifactError:
        assert facts.read_error or facts.columns != SOUND_COLUMNS or facts.num_rows == len(ROWS)
    else:
        assert facts.num_rows == num_rows
