"""The text of a build: of a dropped row all that is wrong with it, and the remedy."""

import json
from pathlib import Path

from bridgepack.records.manifests import UnreadField
from bridgepack.reporting.results.artifacts import unread_blocks
from bridgepack.reporting.results.builds import build_blocks
from bridgepack.reporting.screen import screen
from tests.support.small_builds import build, chat_row, small_recipe, write_json_lines


def test_a_drop_is_told_with_its_whole_remedy(tmp_path: Path, chatml_tokenizer: Path) -> None:
    names = {f"a_column_with_a_long_name_{number}": "x" for number in range(4)}
    rows = [chat_row("What?", "That."), {"question": "2 + 2?", "answer": "4", **names}]
    path = write_json_lines(tmp_path / "rows.jsonl", rows)
    data = {"train": str(path), "layout": {"kind": "chat", "messages": [{"from_column": "messages"}]}}
    sections = {"data": data, "packing": {"packed_sequence_size": 64}}
    result = build(small_recipe("", chatml_tokenizer, **sections), tmp_path / "out")
    (line,) = (result.output / "plan" / "dropped.jsonl").read_text().splitlines()
    detail = json.loads(line)["detail"]

    text = screen(build_blocks(result))

    assert len(detail) > 120
    assert "question" in detail[120:]  # what reads the row
    assert detail in text


def test_many_and_long_names_of_unread_fields_are_shortened() -> None:
    names = ["messages." + "k" * 1_000_000, *(f"column{number}" for number in range(44))]
    counts = {"source": 0, "num_rows": 1, "num_rows_read": 2, "file_index": 0, "row": 1, "example": "'x'"}
    fields = [UnreadField(name=name, holds="identifier", **counts) for name in names]
    fields = [UnreadField(name="n" * 200, holds="text", **counts), *fields]
    title, text, line = screen(unread_blocks(fields)).splitlines()

    assert "not read" in title
    assert text.endswith("n [... 120 characters ...] " + "n" * 40 + f"{1:>8}   text in 50% of the rows, e.g. 'x'")
    assert line.endswith(", labels or copies")
    assert ", column38 and 5 more: " in line
    assert "k [... 999,929 characters ...] k" in line
    assert len(line) < 1000
