"""Rows and their numbers from every kind of file, however it is cut into ranges."""

import gzip
import io
import json
import re
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bridgepack.data.reading import lines, ranges
from bridgepack.data.reading import lines as line_blocks
from bridgepack.data.reading import rows as row_reading
from bridgepack.data.reading.inputs import InputFile, find_inputs, hash_file
from bridgepack.data.reading.lines import iter_array_lines
from bridgepack.data.reading.ranges import InputRange
from bridgepack.data.reading.rows import read_line, read_range, rows_apart
from bridgepack.errors import DataError, RowError
from tests.support.messages import mentions

Found = list[tuple[int, Any]]
LINES = b'{"a": 1}\n{"a": 2}\n\n{"a": 3}'
THREE = [(1, {"a": 1}), (2, {"a": 2}), (3, "blank"), (4, {"a": 3})]
ELEMENTS = [(1, {"a": 1}), (2, {"a": 2}), (3, {"a": 3})]
REASONS = ("not_an_object", "not_an_object", "not_an_object", "invalid_json", "invalid_json")
BAD_ELEMENTS = b'[{"a": 1}, 5, null, [1], {"a": "\\ud800"}, {"a": ' + b"9" * 5000 + b'}, {"a": 2}]'
ARRAY = b' [\n{"a": 1},{"a": 2} ,\n\n {"a": 3}]\n'


def _file(path: Path) -> InputFile:
    (file,) = find_inputs((str(path),), "data.train", "training", path.parent)
    return file


def _ranges(file: InputFile, *, max_row_bytes: int = 1 << 25) -> list[InputRange]:
    return list(ranges.iter_ranges(file, sha256=hash_file(file.path), max_row_bytes=max_row_bytes))


def _read(path: Path, **options: int) -> Found:
    """Return (row, columns or reason or "blank") of every row; the same however rows are read."""
    file = _file(path)
    parts = _ranges(file, **options)
    found = [_shown(row, item) for part in parts for row, item in read_range(file, part)]
    assert found == [_shown(row, item) for part in parts for rows in rows_apart(file, part) for row, item in rows]
    return found


def _shown(row: int, item: Any) -> tuple[int, Any]:
    if item is None:
        return row, "blank"
    return row, item.reason if isinstance(item, RowError) else item


def _read_bytes(tmp_path: Path, name: str, content: bytes) -> Found:
    (tmp_path / name).write_bytes(content)
    return _read(tmp_path / name)


def _message(tmp_path: Path, name: str, content: bytes) -> str:
    with pytest.raises(DataError) as raised:
        _read_bytes(tmp_path, name, content)
    assert "\n" not in str(raised.value)
    return str(raised.value).replace(f"{tmp_path}/", "")


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("a.jsonl", LINES, THREE),
        ("newline-at-end.jsonl", LINES + b"\n", THREE),
        ("crlf.jsonl", LINES.replace(b"\n", b"\r\n"), THREE),
        ("bom.jsonl", b"\xef\xbb\xbf" + LINES, THREE),
        ("spaces.jsonl", LINES.replace(b"\n", b" \t\n "), THREE),
        ("a.jsonl.gz", gzip.compress(LINES, mtime=0), THREE),
        ("a.jsonl.zst", zstandard.compress(LINES), THREE),
        ("members.jsonl.gz", gzip.compress(LINES[:12], mtime=0) + gzip.compress(LINES[12:], mtime=0), THREE),
        ("frames.jsonl.zst", zstandard.compress(LINES[:12]) + zstandard.compress(LINES[12:]), THREE),
        ("lines.json", LINES, THREE),
        ("lines.json.gz", gzip.compress(LINES, mtime=0), THREE),
        ("a.json", ARRAY, ELEMENTS),
        ("crlf.json", ARRAY.replace(b"\n", b"\r\n"), ELEMENTS),
        ("bom.json", b"\xef\xbb\xbf" + ARRAY, ELEMENTS),
        ("a.json.gz", gzip.compress(ARRAY, mtime=0), ELEMENTS),
        ("a.json.zst", zstandard.compress(ARRAY), ELEMENTS),
        ("empty.jsonl", b"", []),
        ("empty.jsonl.gz", b"", []),
        ("empty.jsonl.zst", zstandard.compress(b""), []),
        ("empty.json", b"", []),
        ("empty-array.json", b"[]", []),
        ("empty-array.json", b" [ ] ", []),
        ("blank.jsonl", b"\n \r\n", [(1, "blank"), (2, "blank")]),
        ("blank.json", b" \n", [(1, "blank")]),
        ("bad.json", BAD_ELEMENTS, list(enumerate([{"a": 1}, *REASONS, {"a": 2}], 1))),
    ],
)
def test_rows_of_lines_and_arrays(tmp_path: Path, name: str, content: bytes, found: Found) -> None:
    assert _read_bytes(tmp_path, name, content) == found


BAD_LINES = [
    (b'{"a": 1', "invalid_json"),
    (b"{'a': 1}", "invalid_json"),
    (b'{"a": 1} {"a": 2}', "invalid_json"),
    (b'{"a": "\xff"}', "invalid_json"),
    (b'{"a": "\0"}', "invalid_json"),
    (b'{"a": \0 1}', "invalid_json"),
    (b'{"a": "\\ud800"}', "invalid_json"),
    (b'{"a": ["\\udc00\\ud800"]}', "invalid_json"),
    (b'{"a": ' + b"[" * 100_000, "invalid_json"),
    (b'{"a": ' + b"9" * 5000 + b"}", "invalid_json"),
    (b"\x0b", "invalid_json"),
    ('{"a": 1}'.encode("utf-16"), "invalid_json"),
    (b"5", "not_an_object"),
    (b"null", "not_an_object"),
    (b'"text"', "not_an_object"),
    (b'[{"a": 1}]', "not_an_object"),
]


def test_bad_lines_cost_their_own_row_only(tmp_path: Path) -> None:
    content = b"".join(line + b'\n{"a": 1}\n' for line, _ in BAD_LINES)

    found = _read_bytes(tmp_path, "a.jsonl", content)

    assert [row for row, _ in found] == list(range(1, 2 * len(BAD_LINES) + 1))
    assert [item for _, item in found[::2]] == [reason for _, reason in BAD_LINES]
    assert [item for _, item in found[1::2]] == [{"a": 1}] * len(BAD_LINES)


#: Lines that jiter and `json` might read differently, besides the bad ones.
ODD_LINES = (
    b'{"a": 1, "b": [1.5, -0, 0.1, 1e5, 1E400, -1e-400, null, true]}',
    b'{"a": 123456789012345678901234567890, "b": 0.12345678901234567890123}',
    b'{"a": 9223372036854775807, "b": 18446744073709551615, "c": -9223372036854775808}',
    b'{"a": NaN, "b": Infinity}',
    b'{"a": 1, "a": 2, "b": "\\ud83d\\ude00 \\u00e9 \\/ \\u0000", "a": 3}',
    *(b'\xef\xbb\xbf{"a": 1}', b'{"a": "tab\there"}', b'{"a": 01}', b'{"a": 1}\r\n', b"{}"),
    b'{"a": ' + b"[" * 2000 + b"]" * 2000 + b"}",
)


@pytest.mark.parametrize("line", [*ODD_LINES, *(line for line, _ in BAD_LINES)], ids=lambda line: repr(line[:40]))
def test_lines_are_read_the_same_with_json_alone(line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    found = read_line(line)
    monkeypatch.setattr(row_reading, "_LOADS", None)

    again = read_line(line)
    assert (repr(found), str(found)) == (repr(again), str(again))


#: A row, and the key that it has twice in one object.
REPEATED = (
    (b'{"text": "a", "text": "b"}', "text"),
    (b'{"text": "a", "text": "a"}', "text"),
    (b'{"text": "a", "t\\u0065xt" : "b"}', "text"),
    (b'{"messages": [{"role": "user", "content": "a", "content": "b"}]}', "content"),
    (b'{"a": 123456789012345678901234567890, "b": [[{"": 1, "x": {"": 2}, "":3}]]}', ""),
    (b'\xef\xbb\xbf{"a": NaN, "a": 1}', "a"),
)
#: Names that are repeated, but not in one object.
NOT_REPEATED = (
    {"a": {"a": [{"a": 1}, {"a": 1}]}},
    {"a": '{"b": 1, "b": 2}', "b": '"a": "a" : '},
    {"a": 1, "A": 2, "a ": 3, "\u0430": 4},
)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.json"])
@pytest.mark.parametrize("has_jiter", [True, False])
def test_row_with_a_repeated_key_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, has_jiter: bool
) -> None:
    if not has_jiter:
        monkeypatch.setattr(row_reading, "_LOADS", None)
    rows = [*(line for line, _ in REPEATED[:-1]), *(json.dumps(row).encode() for row in NOT_REPEATED)]
    content = b"[" + b",".join(rows) + b"]" if name == "a.json" else b"\n".join(rows)

    found = _read_bytes(tmp_path, name, gzip.compress(content) if name.endswith("gz") else content)

    assert found == list(enumerate([*["invalid_json"] * (len(REPEATED) - 1), *NOT_REPEATED], 1))
    for line, key in REPEATED:
        assert mentions(read_line(line), "invalid_json: ", f'the key "{key}" twice')


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[", "element 1: the array ends early"),
        (b'[{"a": 1}', "element 1: the array ends early"),
        (b'[{"a": 1},', "element 2: the array ends early"),
        (b'[{"a": 1}, {"a": "b', "element 2: the array ends early"),
        (b'[{"a": 1} {"a": 2}]', "element 1: Extra data"),
        (b'[{"a": 1}, ]', "element 2"),
        (b"[,]", "element 2"),
        (b'[{"a": 1},, {"a": 2}]', "element 2: it is missing"),
        (b'[{"a": 1}}', "element 1: it is followed by }"),
        (b'[{"a": 1}] x', "element 1"),
        (b"[] []", "element 1"),
        (b'[{"a": "\xff"}]', "element 1: not UTF-8: 'utf-8' codec can't decode"),
        (b'[{"a": "\0"}]', "element 1: Invalid control character at"),
        (b'[{"a": "x\ny"}]', "element 1: Invalid control character at"),
        (b"[" * 100_000 + b"]" * 100_000, "element 1: maximum recursion depth exceeded"),
        (b"[" * 100_000, "element 1: the array ends early"),
    ],
)
def test_broken_array_stops_the_build(tmp_path: Path, content: bytes, reason: str) -> None:
    message = _message(tmp_path, "a.json", content)

    assert message.startswith("a.json is not a JSON")
    assert mentions(message, f": {reason}", "only that row.")


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(elements=st.lists(JSON_VALUES, max_size=6), block_bytes=st.integers(1, 70), is_ascii=st.booleans())
@example(elements=["x" * 30, 12345, -0.25, 1e300, {"c": '"}]'}], block_bytes=1, is_ascii=True)
def test_elements_do_not_depend_on_where_blocks_end(elements: list[Any], block_bytes: int, is_ascii: bool) -> None:
    text = json.dumps(elements, ensure_ascii=is_ascii, indent=block_bytes % 3 or None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "_BLOCK_BYTES", block_bytes)
        found = b"".join(iter_array_lines(io.BytesIO(text.encode(errors="surrogatepass")), "a.json"))

    assert [json.loads(line) for line in found.splitlines()] == elements


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl.gz", gzip.compress(LINES * 999, mtime=0)[:-1]),
        ("a.jsonl.gz", gzip.compress(LINES, mtime=0)[:-8] + bytes(8)),
        ("a.jsonl.gz", LINES),
        ("a.json.gz", gzip.compress(ARRAY, mtime=0)[:-9]),
        ("a.jsonl.zst", zstandard.compress(LINES * 999)[:-1]),
        ("a.jsonl.zst", zstandard.compress(LINES) + zstandard.compress(LINES)[:-1]),
        ("a.jsonl.zst", zstandard.compress(LINES) + b"more"),
        ("a.jsonl.zst", LINES),
    ],
)
def test_compressed_file_that_is_not_whole(tmp_path: Path, name: str, content: bytes) -> None:
    message = _message(tmp_path, name, content)

    assert message.startswith(f"{name} is incomplete ")
    assert f" {name.rpartition('.')[2]} data: " in message
    assert message.endswith("compress it again.")


def _write_table(path: Path, table: pa.Table, *, rows_per_group: int) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=rows_per_group, use_dictionary=False)
    else:
        new = pa.ipc.new_stream if path.name == "stream.arrow" else pa.ipc.new_file
        with pa.OSFile(str(path), "wb") as sink, new(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows_per_group)
    return path


NULL_TEXTS = {"role": "user", "content": None, "value": None}
ROWS_OF_TABLE = pa.Table.from_pylist(
    [{"a": index, "b": None, "turns": [NULL_TEXTS | {"name": None}]} for index in range(5)]
)
COLUMNAR = ("a.parquet", "a.arrow", "stream.arrow")


@pytest.mark.parametrize("name", COLUMNAR)
def test_columns_lose_nulls_but_not_null_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(ranges, "_MIN_COLUMNS_BYTES", 150)

    assert _read(_write_table(tmp_path / name, ROWS_OF_TABLE, rows_per_group=2)) == [
        (index + 1, {"a": index, "turns": [NULL_TEXTS]}) for index in range(5)
    ]
    assert _read(_write_table(tmp_path / name, ROWS_OF_TABLE[:0], rows_per_group=2)) == []


@pytest.mark.parametrize(("name", "kind"), [("a.parquet", "a Parquet file"), ("a.arrow", "an Arrow file")])
@pytest.mark.parametrize("num_bytes", [0, 4, 200])
def test_columnar_file_that_is_cut_off(tmp_path: Path, name: str, kind: str, num_bytes: int) -> None:
    whole = _write_table(tmp_path / name, ROWS_OF_TABLE, rows_per_group=2).read_bytes()

    assert _message(tmp_path, name, whole[:num_bytes]).startswith(f"{name} is not {kind}: ")


def test_parquet_page_that_is_corrupted(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [str(index) * 50 for index in range(2000)]}), path, compression="zstd")
    content = bytearray(path.read_bytes())
    content[100:200] = bytes(100)

    assert _message(tmp_path, "a.parquet", bytes(content)).startswith("a.parquet: row group 0 cannot be read: ")


@pytest.mark.parametrize("name", ["a.arrow", "stream.arrow"])
@pytest.mark.parametrize(("value", "step"), [("xy", 2), (["xy"], 1), (["xy"], 2), ({"b": "xy"}, 2)])
def test_arrow_file_with_a_damaged_offset(tmp_path: Path, name: str, value: Any, step: int) -> None:
    path = _write_table(tmp_path / name, pa.table({"a": [value] * 5}), rows_per_group=5)
    offsets = np.arange(0, 6 * step, step, dtype=np.int32).tobytes()
    content = path.read_bytes()
    assert offsets in content

    message = _message(tmp_path, name, content.replace(offsets, offsets[:8] + b"\xff\xff\xff\x3f" + offsets[12:]))

    assert mentions(message, f"{name} is damaged", " row 0: ", "an offset", "Write it again.")


@pytest.mark.parametrize("range_bytes", [1, 7, 30, 1 << 20])
@pytest.mark.parametrize("content", [LINES * 3, LINES * 3 + b"\n", b"\n\n" + LINES.replace(b"\n", b"\r\n"), b"\n"])
def test_rows_do_not_depend_on_where_lines_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, range_bytes: int, content: bytes
) -> None:
    whole = _read_bytes(tmp_path, "a.jsonl", content)
    monkeypatch.setattr(line_blocks, "MIN_BLOCK_BYTES", range_bytes)

    assert _read_bytes(tmp_path, "a.jsonl", content) == whole
    assert _read_bytes(tmp_path, "a.jsonl.gz", gzip.compress(content)) == whole
    assert _read_bytes(tmp_path, "a.jsonl.zst", zstandard.compress(content)) == whole
    assert [row for row, _ in whole] == list(range(1, len(content.split(b"\n")) + (not content.endswith(b"\n"))))


@pytest.mark.parametrize("rows_per_group", [1, 7, 100, 1000])
def test_table_ranges_hold_each_row_once_and_are_read_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_per_group: int
) -> None:
    monkeypatch.setattr(ranges, "_MIN_COLUMNS_BYTES", 400)
    table = pa.table({"a": list(range(1000))})
    path = _write_table(tmp_path / "a.parquet", table, rows_per_group=rows_per_group)

    parts = _ranges(_file(path))

    assert [part.start for part in parts] == [0, *[part.stop for part in parts[:-1]]]
    assert [part.first_row for part in parts] == [part.start + 1 for part in parts]
    assert sum(part.num_bytes for part in parts) == path.stat().st_size
    assert (parts[-1].stop, len({part.sha256 for part in parts})) == (1000, len(parts))
    assert len(parts) > 10
    assert _read(path) == [(row + 1, {"a": row}) for row in range(1000)]
    for part in (*parts[::-1], parts[2], parts[2]):
        rows = [_shown(row, item) for row, item in read_range(_file(path), part)]
        assert rows == [(row + 1, {"a": row}) for row in range(part.start, part.stop)]


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_rows_of_a_table_that_are_too_large_are_dropped(tmp_path: Path, name: str) -> None:
    rows = [{"a": "x" * (5000 if row % 7 == 3 else 5), "b": row} for row in range(60)]
    path = _write_table(tmp_path / name, pa.Table.from_pylist(rows), rows_per_group=25)

    dropped = ["row_too_large" if row["b"] % 7 == 3 else row for row in rows]
    assert _read(path, max_row_bytes=4000) == list(enumerate(dropped, 1))
    assert _read(path, max_row_bytes=1 << 20) == list(enumerate(rows, 1))


LONG = json.dumps({"a": "x" * 50}).encode()


@pytest.mark.parametrize("block_bytes", [1, 20, 1 << 20])
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.json", "a.json.zst"])
def test_large_rows_cost_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, block_bytes: int) -> None:
    monkeypatch.setattr(line_blocks, "MIN_BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(line_blocks, "_PIECE_BYTES", 7)
    monkeypatch.setattr(lines, "_BLOCK_BYTES", block_bytes)
    rows = [LONG, b'{"a": 1}', LONG, LONG, b'{"a": "[]{}\\""}', LONG]
    content = b"[" + b", ".join(rows) + b"]" if ".json" in name[-9:] and "jsonl" not in name else b"\n".join(rows)
    compress = {"gz": gzip.compress, "st": zstandard.compress}.get(name[-2:], bytes)
    (tmp_path / name).write_bytes(compress(content))

    large = "row_too_large"
    found = [item for _, item in _read(tmp_path / name, max_row_bytes=40)]
    assert found == [large, {"a": 1}, large, large, {"a": '[]{}"'}, large]
    assert all(item != "row_too_large" for _, item in _read(tmp_path / name, max_row_bytes=len(LONG)))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl.gz", gzip.compress(b"x" * (1 << 24), mtime=0)),
        ("a.jsonl.zst", zstandard.compress(b"{}\n" * (1 << 23))),
    ],
)
def test_file_that_grows_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes) -> None:
    monkeypatch.setattr(lines, "_ALWAYS_ALLOWED_BYTES", 1 << 22)

    message = _message(tmp_path, name, content)

    assert message.startswith(f"{name} expands to ")
    assert "over 300 times its size" in message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.write_bytes(LINES[:9]), "a.jsonl changed while it was"),
        (lambda path: path.write_bytes(LINES.replace(b"1", b"7")), "a.jsonl changed while it was"),
        (lambda path: path.unlink(), "cannot be read"),
    ],
)
def test_file_that_changes_while_it_is_read(tmp_path: Path, change: Any, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINES)
    file = _file(path)
    (part,) = _ranges(file)
    change(path)

    with pytest.raises(DataError, match=message):
        list(read_range(file, part))


NOT_UTF8 = pa.array([0, 1, 2, 3], pa.int32()).buffers()[1], pa.py_buffer(b"x\xffz")
PAIRS = pa.map_(pa.string(), pa.int64())
NULL_TURN = [None, {"role": "user", "content": "hi", "name": None}]


@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        ({"a": pa.Array.from_buffers(pa.string(), 3, [None, *NOT_UTF8])}, [{"a": "x"}, "invalid_field", {"a": "z"}]),
        ({"day": pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32())}, [{"day": date(1970, 1, 1)}, "invalid_field"]),
        ({"a": pa.array([[("x", 1)], [("x", 1), ("x", 2)]], PAIRS)}, [{"a": {"x": 1}}, "invalid_field"]),
        ({"messages": [NULL_TURN]}, [{"messages": [None, {"role": "user", "content": "hi"}]}]),
    ],
    ids=["not UTF-8", "a day that Python does not have", "a map with a key twice", "nulls behind a null turn"],
)
def test_odd_values_of_a_table(tmp_path: Path, columns: dict[str, Any], rows: list[Any]) -> None:
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")

    assert _read(tmp_path / "a.parquet") == list(enumerate(rows, 1))


def test_columnar_rows_keep_null_content_of_turns_only(tmp_path: Path) -> None:
    """Another row's tool has a parameter `content`; this one's has not, and a Parquet file cannot tell."""
    call = {"path": "p", "content": None}
    turn = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": call}}]}
    calls = [{"function": {"name": "", "arguments": {**call, "content": ""}}}]
    other = {"role": "user", "content": "", "tool_calls": calls}
    extra = pa.array([[("x", "1")], []], pa.map_(pa.string(), pa.string()))
    pq.write_table(pa.table({"messages": [[turn], [other]], "extra": extra}), tmp_path / "a.parquet")

    (_, columns), _ = _read(tmp_path / "a.parquet")

    (message,) = columns["messages"]
    assert message["content"] is None
    assert message["tool_calls"] == [{"function": {"name": "f", "arguments": {"path": "p"}}}]
    assert columns["extra"] == {"x": "1"}


@given(columns=st.dictionaries(st.text(), JSON_VALUES), is_ascii=st.booleans())
def test_any_row_comes_back(columns: dict[str, Any], is_ascii: bool) -> None:
    text = json.dumps(columns, ensure_ascii=is_ascii)

    found = read_line(text.encode(errors="surrogatepass"))

    assert isinstance(found, (dict, RowError))
    if isinstance(found, dict):
        assert repr(found) == repr(json.loads(text))


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_file_that_goes_on_with_blank_lines_is_refused(tmp_path: Path, name: str) -> None:
    def num_rows(num_blank: int) -> int:
        content = b'{"a": 1}\n' + b"\n" * num_blank
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        (file,) = find_inputs((str(tmp_path / name),), "data.train", "training", tmp_path)
        return sum(part.num_rows for part in ranges.iter_ranges(file, sha256="", max_row_bytes=1 << 30))

    assert num_rows(200_000) == 200_001
    with pytest.raises(DataError, match=r"1,048,576 bytes of blank lines .*row \d+ .*Remove them"):
        num_rows(3 << 20)


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.jsonl.gz"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_json_in_utf_16_is_refused(tmp_path: Path, name: str, encoding: str) -> None:
    """Every row of it would be dropped, with as many reasons as lines."""
    content = '{"a": 1}\n{"a": 2}\n'.encode(encoding)
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)

    with pytest.raises(DataError, match=re.escape(f"{path} is in UTF-16; allowed: UTF-8. Save it as UTF-8.")):
        list(ranges.iter_ranges(_file(path), sha256="", max_row_bytes=1 << 20))
