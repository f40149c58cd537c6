"""A file that is one JSON object is refused with a command that writes its rows, and they build."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from bridgepack.data.reading.whole_objects import OneObjectError
from bridgepack.planning.detecting import detect_data
from tests.support.small_builds import build, chat_row, small_recipe

CHATS = [chat_row(f"What is {number} + 2?", f"It is {number + 2}.") for number in range(3)]
TURNS = [row["messages"] for row in CHATS]
ASKED, SAID = [turns[0]["content"] for turns in TURNS], [turns[1]["content"] for turns in TURNS]
PAIRS = [{"question": question, "answer": answer} for question, answer in zip(ASKED, SAID, strict=True)]
OBJECTS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "rows under data": ({"version": "1", "data": CHATS}, CHATS),
    "rows beside a list of others": ({"features": [{"name": "messages"}], "rows": CHATS}, CHATS),
    "turns under conversations": ({"conversations": TURNS}, CHATS),
    "lists as columns": ({"question": ASKED, "answer": SAID}, PAIRS),
    "objects as columns": (
        {name: {str(n): row[name] for n, row in enumerate(PAIRS)} for name in ("question", "answer")},
        PAIRS,
    ),
    "rows by name": ({f"chat {number}": row for number, row in enumerate(CHATS)}, CHATS),
    "one row": (CHATS[0], CHATS[:1]),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_the_command_that_is_said_writes_rows_that_build(
    tmp_path: Path, chatml_tokenizer: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    value, rows = OBJECTS[name]
    path = tmp_path / "a file.json"
    path.write_text(json.dumps(value, indent=1))

    with pytest.raises(OneObjectError) as of_build:
        build(small_recipe(path, chatml_tokenizer), tmp_path / "none")
    with pytest.raises(OneObjectError) as of_new:
        detect_data(str(path))

    assert str(of_build.value) == str(of_new.value)
    assert not (tmp_path / "none").exists()
    _, command, _ = str(of_build.value).split("`")
    *_, code, redirection, target = shlex.split(command)
    assert (redirection, target) == (">", "rows.jsonl")
    exec(code, {})
    written = capsys.readouterr().out
    assert [json.loads(line) for line in written.splitlines()] == rows
    (tmp_path / target).write_text(written)
    recipe = small_recipe(tmp_path / target, chatml_tokenizer, packing={"packed_sequence_size": 64})
    assert build(recipe, tmp_path / "out").manifest.splits[0].statistics.num_rows_packed == len(rows)


def test_lines_of_objects_of_which_the_first_is_broken_stay_rows(tmp_path: Path, chatml_tokenizer: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("{\n" + "".join(f"{json.dumps(row)}\n" for row in CHATS))

    split = build(small_recipe(path, chatml_tokenizer, packing={"packed_sequence_size": 64}), tmp_path / "out")

    assert split.manifest.splits[0].drops == {"invalid_json": 1}
