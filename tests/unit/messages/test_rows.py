"""Whole messages: why a row is dropped, and why data are refused."""

import os
from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.reading.inputs import find_inputs, hash_file
from bridgepack.data.reading.ranges import iter_ranges
from bridgepack.data.reading.rows import read_line, read_range
from bridgepack.data.sequences.chat import chat_encoder
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.errors import DataError, RowError
from tests.support.read_rows import ReadingEncoder, encode_examples
from tests.zoo.tokenizers import Family, loaded_tokenizer

ASKED, ANSWERED = {"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}
KINDS = ".jsonl, .json, .csv, .tsv (each also .gz or .zst), .parquet, .arrow"


@pytest.fixture(scope="module")
def encoder(chatml_tokenizer: Path) -> ReadingEncoder:
    """Return an encoder of chats with the default settings."""
    settings = ChatPreprocessing()
    tokenizer = load_tokenizer(TokenizerConfig(name_or_path=str(chatml_tokenizer)))
    return ReadingEncoder(chat_encoder(tokenizer, settings), settings)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            b'{"a": 1',
            "invalid_json: Expecting ',' delimiter: line 1 column 8 (char 7); the line begins '{\"a\": 1'",
        ),
        (
            b'{"a": 1} {"a": 2}',
            'invalid_json: Extra data: line 1 column 10 (char 9); the line begins \'{"a": 1} {"a": 2}\'',
        ),
        (
            b'{"a": "\xff"}',
            "invalid_json: not UTF-8: 'utf-8' codec can't decode byte 0xff in position 7: invalid start byte",
        ),
        (
            b'{"a": "\\ud800"}',
            "invalid_json: a \\u escape is half of a surrogate pair, which is not a character",
        ),
        (b'{"a": 1, "a": 2}', 'invalid_json: an object has the key "a" twice, and only one value can be meant'),
        (
            b"[1]",
            'not_an_object: the row is a list; it must be an object, such as {"messages": [..]} around a list of turns',
        ),
    ],
)
def test_lines_that_are_no_row(line: bytes, message: str) -> None:
    assert str(read_line(line)) == message


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ("Q", "invalid_field: messages is a str; it must be a list of turns"),
        ([], "empty_conversation: messages has no turns"),
        ([ASKED], "no_assistant_mask: there is no assistant turn"),
        (
            [ASKED, {"role": "narrator", "content": "A"}],
            "unknown_role: turn 2: role 'narrator'; known: assistant, developer, system, tool, user; name it in "
            "data.role_aliases",
        ),
        (
            [ASKED, {"role": "assistant"}],
            "missing_field: turn 2 has neither role and content nor from and value; it has: role",
        ),
        ([ASKED, {**ANSWERED, "content": True}], "invalid_field: turn 2: content is a bool; it must be text"),
        (
            ["Q"],
            "invalid_field: turn 1 is a str; it must be an object, or a list of a question and its answer",
        ),
        (
            [ASKED, {**ANSWERED, "tool_calls": [{"name": "f", "args": {}, "input": {}}]}],
            "invalid_field: turn 2: tool_calls: a call has both args and input, and only one can be its arguments; "
            "remove one",
        ),
        (
            [ASKED, {**ANSWERED, "content": "\ud800"}],
            "invalid_field: the text contains U+D800, half of a character that was cut in two",
        ),
    ],
)
def test_chats_that_are_dropped(encoder: ReadingEncoder, messages: Any, message: str) -> None:
    (error,) = encode_examples(encoder, [{"messages": messages}])

    assert isinstance(error, RowError)
    assert str(error) == message


#: Writes a header before the first answer only.
_ONE_HEADER = (
    "{%- for m in messages -%}{%- if m.role == 'user' -%}{{- '<|im_start|>user\n' -}}{%- elif loop.index == 2 -%}"
    "{{- '<|im_start|>assistant\n' -}}{%- endif -%}{{- m.content + '<|im_end|>\n' -}}{%- endfor -%}"
)


@pytest.mark.parametrize(
    ("markers", "cure"),
    [
        (None, "set preprocessing.assistant_markers, or use another template"),
        (
            {"assistant_start": "<|im_start|>assistant\n", "assistant_end": "<|im_end|>"},
            "use a template that begins and ends each answer with assistant_markers, or remove the row",
        ),
    ],
)
def test_chats_whose_answers_the_template_does_not_part(tmp_path: Path, markers: Any, cure: str) -> None:
    tokenizer = loaded_tokenizer(tmp_path, Family(name="one header", template=_ONE_HEADER))
    settings = ChatPreprocessing(assistant_markers=markers)
    asked_again = {"role": "user", "content": "Again"}
    encoder = ReadingEncoder(chat_encoder(tokenizer, settings), settings)

    (error,) = encode_examples(encoder, [{"messages": [ASKED, ANSWERED, asked_again, {**ANSWERED, "content": "B"}]}])

    assert isinstance(error, RowError)
    assert str(error) == (
        "no_assistant_mask: the rendered turns do not match the conversation's (turn 4 has no text behind a header, "
        f"and 0 places may be its own); {cure}"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "pipes.json",
            "data.train is 'pipes.json'; there is no such file or folder. Check the path; it is relative to the "
            "current folder.",
        ),
        ("folder", f"data.train is 'folder'; the folder has no data file. Allowed: {KINDS}. Name another."),
        ("a.xlsx", f"data.train: 'a.xlsx' is of an unknown kind. Allowed: {KINDS}. Rename or convert it."),
        ("*.tsv", "data.train is '*.tsv'; the pattern matches no file. Check the path and the pattern."),
        (
            "link.csv",
            "data.train: 'link.csv' is a broken link: its target does not exist. Fetch the target or remove the link.",
        ),
        (
            "pipe.json",
            "data.train is 'pipe.json', which is neither a file nor a folder. Write its rows to a file and name that.",
        ),
    ],
)
def test_names_of_data_that_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("a.xlsx").touch()
    Path("link.csv").symlink_to("nowhere")
    os.mkfifo("pipe.json")

    with pytest.raises(DataError) as refused:
        find_inputs((name,), "data.train", "training", tmp_path)

    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.json",
            b'[{"a": 1}',
            "a.json is not a JSON array of objects: element 1: the array ends early. Correct it, or write one object a "
            "line (.jsonl), where a broken line costs only that row.",
        ),
        (
            "a.csv",
            b"p,p\n1,2\n",
            "a.csv has several columns named 'p'; allowed: a first line with the columns' names, each once, separated "
            "by commas. Give each column a name of its own.",
        ),
        (
            "a.jsonl.gz",
            b"{}",
            "a.jsonl.gz is incomplete gz data: zlib inflate failed: incorrect header check. Fetch or compress it "
            "again.",
        ),
    ],
)
def test_files_that_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content)

    def read() -> None:
        (file,) = find_inputs((name,), "data.train", "training", tmp_path)
        list(iter_ranges(file, sha256=hash_file(file.path), max_row_bytes=1 << 20))

    with pytest.raises(DataError) as refused:
        read()

    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("content", "messages"),
    [
        (b"p,c\n1\n", ["invalid_field: the row has 1 cell, and the header 2: 'p, c'"]),
        (
            b'p,c\n"x"y,7\n\xff,8\n',
            [
                "invalid_field: line 2: ',' expected after '\"'; a quote inside a cell must be doubled",
                "invalid_field: not UTF-8. Save the file as UTF-8.",
            ],
        ),
        (b"p,c\n1," + b"2" * 120 + b"\n", ["row_too_large: the row has 122 bytes, more than data.max_row_bytes"]),
    ],
)
def test_rows_of_tables_that_are_dropped(tmp_path: Path, content: bytes, messages: list[str]) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    (file,) = find_inputs((str(tmp_path / "a.csv"),), "data.train", "training", tmp_path)

    parts = iter_ranges(file, sha256=hash_file(file.path), max_row_bytes=100)

    assert [str(row) for part in parts for _, row in read_range(file, part)] == messages
