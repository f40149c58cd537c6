"""Lines of JSON give the same rows and errors with orjson as with `json` alone."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridgepack.data.reading import json_rows
from bridgepack.data.reading.json_rows import read_line
from bridgepack.errors import RowError
from bridgepack.records import Example

LINES = (
    b'{"a": 1, "b": [1.5, -0, 0.1, 1e5, 1E400, -1e-400, null, true]}',
    b'{"a": 1, "a": 2, "b": 0, "a": 3}',
    b'{"a": 123456789012345678901234567890, "b": 0.12345678901234567890123}',
    b'{"a": 9223372036854775807, "b": 18446744073709551615, "c": -9223372036854775808}',
    b'{"a": NaN, "b": Infinity}',
    b'{"a": "\\ud83d\\ude00 \\u00e9 \\/ \\u0000"}',
    b'{"a": "\\ud83d"}',
    b'\xef\xbb\xbf{"a": 1}',
    b'{"a": "\xff"}',
    b'{"a": "tab\there"}',
    b'{"a": 1} x',
    b'{"a": 01}',
    b"{a: 1}",
    b'{"a": 1}\r\n',
    b"[1]",
    b'"text"',
    b"null",
    b"",
    b" \t\r\n",
    b"\xef\xbb\xbf",
    b'{"a": ' + b"[" * 2000 + b"]" * 2000 + b"}",
)


def _plain(found: Example | RowError | None) -> Any:
    return str(found) if isinstance(found, RowError) else repr(found)


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_same_with_json_alone(line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("orjson")
    found = _plain(read_line(line, 1, 2))
    monkeypatch.setattr(json_rows, "_LOADS", None)

    assert found == _plain(read_line(line, 1, 2))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(columns=st.dictionaries(st.text(), values), is_ascii=st.booleans())
def test_any_row_comes_back(columns: dict[str, Any], is_ascii: bool) -> None:
    text = json.dumps(columns, ensure_ascii=is_ascii)
    line = text.encode("utf-8", errors="surrogatepass")

    found = read_line(line, 0, 1)

    assert isinstance(found, (Example, RowError))
    if isinstance(found, Example):
        assert repr(dict(found.columns)) == repr(json.loads(text))


def test_blank_lines_are_no_rows() -> None:
    assert [read_line(line, 0, 1) for line in (b"", b" \r\n", b"\xef\xbb\xbf")] == [None, None, None]
