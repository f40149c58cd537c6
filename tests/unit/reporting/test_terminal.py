"""The text of a build: of a dropped row all that is wrong with it, and the remedy."""

import json
from pathlib import Path

from bridgepack.reporting.terminal import describe_build
from tests.support.small_builds import build, chat_row, small_recipe, write_json_lines


def test_a_drop_is_told_with_its_whole_remedy(tmp_path: Path, chatml_tokenizer: Path) -> None:
    names = {f"a_column_with_a_long_name_{number}": "x" for number in range(4)}
    rows = [chat_row("What?", "That."), {"question": "2 + 2?", "answer": "4", **names}]
    path = write_json_lines(tmp_path / "rows.jsonl", rows)
    result = build(small_recipe(path, chatml_tokenizer, packing={"packed_sequence_size": 64}), tmp_path / "out")
    (line,) = (result.output / "plan" / "dropped.jsonl").read_text().splitlines()
    detail = json.loads(line)["detail"]

    text = describe_build(result)

    assert len(detail) > 120
    assert "question" in detail[120:]  # what reads the row
    assert detail in text
