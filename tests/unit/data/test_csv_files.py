"""CSV and TSV files: every cell a text, every row read or named, and built like the same rows of JSON Lines."""

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from bridgepack.data.reading import csv_files, lines, sampling
from bridgepack.data.reading.inputs import InputFile, find_inputs, hash_file
from bridgepack.data.reading.ranges import iter_ranges
from bridgepack.data.reading.rows import read_range, rows_apart
from bridgepack.data.reading.sampling import file_windows
from bridgepack.errors import DataError, RowError
from tests.support.examples import examples
from tests.support.messages import mentions
from tests.support.small_builds import (
    Command,
    build,
    data_bytes,
    dropped,
    small_recipe,
    write_json_lines,
    write_recipe,
)

Found = list[tuple[int, Any]]
TEXT = 'prompt,completion\r\n"a\nb, ""c""",007\r\n,NULL\r\n1e3,2024-01-01\r\n'
ROWS: list[tuple[int, Any]] = [
    (1, {"prompt": 'a\nb, "c"', "completion": "007"}),
    (2, {"prompt": "", "completion": "NULL"}),
    (3, {"prompt": "1e3", "completion": "2024-01-01"}),
]


def _file(path: Path) -> InputFile:
    (file,) = find_inputs((str(path),), "data.train", "training", path.parent)
    return file


def _read(path: Path, max_row_bytes: int = 1 << 25) -> Found:
    """Return every row, or its error; the same however rows are read."""
    file = _file(path)
    parts = list(iter_ranges(file, sha256=hash_file(file.path), max_row_bytes=max_row_bytes))
    found = [_shown(row, item) for part in parts for row, item in read_range(file, part)]
    assert found == [_shown(row, item) for part in parts for rows in rows_apart(file, part) for row, item in rows]
    return found


def _shown(row: int, item: Any) -> tuple[int, Any]:
    return row, str(item) if isinstance(item, RowError) else item


def _read_text(tmp_path: Path, text: str | bytes, name: str = "a.csv", **options: int) -> Found:
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return _read(tmp_path / name, **options)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", TEXT.encode()),
        ("A.CSV", TEXT.encode()),
        ("bom.csv", b"\xef\xbb\xbf" + TEXT.encode()),
        ("no-newline-at-end.csv", TEXT.strip().encode()),
        ("unix.csv", TEXT.replace("\r\n", "\n").encode()),
        ("blank-lines.csv", b"\n" + TEXT.replace("\r\n", "\n\n").encode() + b"\n\n"),
        ("a.csv.gz", gzip.compress(TEXT.encode(), mtime=0)),
        ("a.csv.zst", zstandard.compress(TEXT.encode())),
        ("a.tsv", TEXT.replace(",", "\t").replace("b\t", "b,").encode()),
        ("a.tsv.gz", gzip.compress(TEXT.replace(",", "\t").replace("b\t", "b,").encode(), mtime=0)),
    ],
)
def test_cells_are_texts_as_they_stand(tmp_path: Path, name: str, content: bytes) -> None:
    assert _read_text(tmp_path, content, name) == ROWS


def test_rows_that_cannot_be_read_keep_their_numbers(tmp_path: Path) -> None:
    text = b'p,c\n1,2\n3\n4,5,6\n\n"x"y,7\n\xff,8\n5" pipe,"9"\n'

    found = _read_text(tmp_path, text)

    assert [row for row, _ in found] == [1, 2, 3, 4, 5, 6]
    assert [found[0][1], found[5][1]] == [{"p": "1", "c": "2"}, {"p": '5" pipe', "c": "9"}]
    assert mentions(found[1][1], "invalid_field: ", "1 cell,", "header 2: 'p, c'")
    assert mentions(found[2][1], "invalid_field: ", "3 cells,", "header 2: 'p, c'")
    assert mentions(found[3][1], "invalid_field: line 6: ',' expected after '\"'", "must be doubled")
    assert mentions(found[4][1], "invalid_field: not UTF-8. ")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            b"prompt;completion\n1;2\n",
            "has one column, 'prompt;completion'",
        ),
        ("a.csv", b'"prompt";"completion"\n1;2\n', "a first line with"),
        ("a.csv", b"prompt\tcompletion\n1\t2\n", "Write it with commas"),
        ("a.csv", b"prompt|completion\n1|2\n", "separated by vertical bars"),
        ("a.tsv", b"prompt,completion\n1,2\n", "Write it with tabs"),
        ("a.csv", b"sep=,\nprompt,completion\n1,2\n", "begins with 'sep=,'"),
        ("a.csv", b"p,c,p\n1,2,3\n", "has several columns named 'p'"),
        ("a.csv", b"p,c,,\n1,2,,\n", "has several columns named ''"),
        ("a.csv", b"\xff\xfep\0,\0c\0\n\0", "is in UTF-16; allowed: UTF-8"),
        ("a.csv", b"p\xff,c\n1,2\n", "that is not UTF-8"),
        ("a.csv", b"p,c\r1,2\r", "new-line character"),
        ("a.csv", b'p,c\n1,2\n"x,1\n3,4\n"y,6\n', "row 2, which begins in line 3"),
        ("a.csv", b'p,c\n1,2\n\n3,"x\n', "row 2, which begins in line 4"),
    ],
)
def test_file_that_cannot_be_told_apart_is_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    with pytest.raises(DataError) as raised:
        _read_text(tmp_path, content, name)

    assert message in str(raised.value)
    assert str(tmp_path / name) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("text", ["text\na; b\n", '"a; b"\na; b\n'])
def test_file_of_one_column_is_read(tmp_path: Path, text: str) -> None:
    ((row, cells),) = _read_text(tmp_path, text)

    assert (row, list(cells.values())) == (1, ["a; b"])


def test_rows_that_are_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"p,c\n1,2\n{'x' * 200},3\n4,5\n"

    found = _read_text(tmp_path, text, max_row_bytes=100)

    assert found[0] == (1, {"p": "1", "c": "2"})
    assert found[1][1].startswith("row_too_large: ")
    assert " 202 " in found[1][1]
    assert found[2] == (3, {"p": "4", "c": "5"})

    # Its own bytes count: as a line of JSON, `{"p": "xx..", "c": "3"}`, it has 18 more. An escaped quote is two bytes.
    assert [row for row, _ in _read_text(tmp_path, text, max_row_bytes=202)] == [1, 2, 3]
    assert _read_text(tmp_path, text, max_row_bytes=202)[1][1] == {"p": "x" * 200, "c": "3"}
    quoted = f'p,c\r\n"{'""' * 50}",3\r\n'
    assert _read_text(tmp_path, quoted, max_row_bytes=104) == [(1, {"p": '"' * 50, "c": "3"})]
    assert " 104 " in _read_text(tmp_path, quoted, max_row_bytes=103)[0][1]

    monkeypatch.setattr(csv_files, "_ROW_BYTES", 100)
    with pytest.raises(DataError, match=r"byte 8 has more than 100 bytes; .*quote"):
        _read_text(tmp_path, text, max_row_bytes=50)
    assert len(_read_text(tmp_path, text, max_row_bytes=300)) == 3


@pytest.mark.parametrize("content", [b"", b"prompt,completion\n", b"\n\n", b"\xef\xbb\xbf"])
def test_file_without_rows_stops_the_build(tmp_path: Path, chatml_tokenizer: Path, content: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(content)

    with pytest.raises(DataError, match=r"training split .*no rows \(.*a\.csv\)"):
        build(small_recipe(tmp_path / "a.csv", chatml_tokenizer), tmp_path / "out")


NAME = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), min_size=1)


@examples(0.6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(NAME.filter(lambda name: not name.startswith("\ufeff")), min_size=2, max_size=4, unique=True),
    cells=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), min_size=4, max_size=40),
    delimiter=st.sampled_from("\t,"),
    block_bytes=st.integers(1, 200),
)
def test_any_text_comes_back(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    names: list[str],
    cells: list[str],
    delimiter: str,
    block_bytes: int,
) -> None:
    monkeypatch.setattr(csv_files, "_BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(lines, "MIN_BLOCK_BYTES", block_bytes)
    rows = [cells[start : start + len(names)] for start in range(0, len(cells) - len(names) + 1, len(names))]
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows([names, *rows])

    found = _read_text(tmp_path, text.getvalue(), "a.tsv" if delimiter == "\t" else "a.csv")

    assert found == [(number, dict(zip(names, row, strict=True))) for number, row in enumerate(rows, 1)]


def test_large_file_is_sampled_in_the_unit_of_its_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_HEAD_BYTES", 1 << 21)
    (tmp_path / "a.csv").write_text("a_long_name,c\n" + "question,answer\n" * 200_000)

    found = file_windows(_file(tmp_path / "a.csv"), max_row_bytes=1 << 25)
    windows = list(found.windows)

    num_rows = sum(window.part.num_rows for window in windows) * found.total / sum(window.size for window in windows)
    assert num_rows == pytest.approx(200_000, rel=0.01)
    assert sum(window.part.num_rows for window in windows) < 100_000


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """Return the rows of rows.csv, rows.tsv.gz and rows.jsonl in the current folder."""
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": f'What, "is"\n{number}?', "completion": f"{number}"} for number in range(1, 60)]
    write_json_lines(Path("rows.jsonl"), rows)
    with Path("rows.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ["prompt", "completion"])
        writer.writeheader()
        writer.writerows(rows)
    with gzip.open("rows.tsv.gz", "wt", newline="") as stream:
        writer = csv.DictWriter(stream, ["prompt", "completion"], delimiter="\t")
        writer.writeheader()
        writer.writerows(rows)
    return rows


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv.gz"])
@pytest.mark.usefixtures("table")
def test_builds_like_json_lines(chatml_tokenizer: Path, tmp_path: Path, command: Command, name: str) -> None:
    changes = {"packing": {"packed_sequence_size": 128}, "preprocessing": {"kind": "chat"}}
    expected = build(small_recipe("rows.jsonl", chatml_tokenizer, **changes), tmp_path / "expected")
    recipe = small_recipe(name, chatml_tokenizer, **changes)

    result = build(recipe, tmp_path / "out", num_workers=1)
    again = build(recipe, tmp_path / "again")

    assert data_bytes(tmp_path / "out") == data_bytes(tmp_path / "expected")
    assert result.manifest.fingerprint == again.manifest.fingerprint != expected.manifest.fingerprint
    (record,) = result.manifest.split("training").inputs
    assert (record.path, record.sha256, record.num_rows) == (name, hash_file(Path(name)), 59)
    path = write_recipe(tmp_path / "recipe.yaml", recipe)
    assert command("prove", "sources", "out").code == 0
    assert command("prove", "masks", "out", "--all").code == 0
    preview = json.loads(command("preview", path, "--json").output)["sources"][0]
    assert (preview["num_rows"], preview["num_rows_read"], preview["is_sample"]) == (59, 59, False)
    traced = command("trace", "out", "--source", f"{name}:2")
    assert (traced.code, f"{name}" in traced.output) == (0, True)


@pytest.mark.usefixtures("table")
def test_changed_file_is_found(chatml_tokenizer: Path, tmp_path: Path, command: Command) -> None:
    build(small_recipe("rows.csv", chatml_tokenizer, packing={"packed_sequence_size": 128}), tmp_path / "out")
    Path("rows.csv").write_text(Path("rows.csv").read_text().replace('"is"', '"was"', 1))

    assert "rows.csv was" in command("prove", "sources", "out").output


def test_ragged_row_is_in_the_ledger(chatml_tokenizer: Path, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("prompt,completion\n1,2\n3\n4,5\n")

    build(small_recipe(tmp_path / "a.csv", chatml_tokenizer, packing={"packed_sequence_size": 128}), tmp_path / "out")

    assert dropped(tmp_path / "out") == [(2, "invalid_field")]
