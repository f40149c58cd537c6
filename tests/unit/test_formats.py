"""The table of formats: every public layout is in it, nothing is wrong in silence, and the judge is right."""

import json
import re
from pathlib import Path

import pytest
from scripts.quirks.builds import Outcome
from scripts.quirks.formats import (
    COLUMNS,
    SILENT,
    Cell,
    formats_page,
    formats_table,
    is_carried_right,
    label_of,
    refusal_of,
)
from scripts.quirks.formats_names import detection_of, examples, name_of
from scripts.quirks.formats_rows import FORMATS, REFUSED
from scripts.quirks.formats_texts import Texts

from bridgepack.config.layouts.public import PUBLIC_LAYOUTS

PROJECT = Path(__file__).parents[2]
TEXTS = Texts(is_carried=True)
ASKED, THOUGHT, ANSWER = TEXTS.o("How deep?"), TEXTS.a("By a map."), TEXTS.a("200 m.")


@pytest.mark.parametrize(
    ("trained", "context", "expected"),
    [
        (f"<think>{THOUGHT}</think>{ANSWER}<|end|>", f"user {ASKED} assistant", True),
        (f"{ANSWER}<|end|>", f"user {ASKED} assistant", False),
        (f"{ANSWER}<|end|>", f"user {ASKED} assistant {THOUGHT}", False),
        (f"{ANSWER}{THOUGHT}<|end|>", f"user {ASKED}", False),
        (f"{ASKED[-3:]}{THOUGHT}{ANSWER}<|end|>", f"user {ASKED}", False),
        (f"{THOUGHT}{ANSWER[:-2]}<|end|>", f"user {ASKED}", False),
        (f"{THOUGHT}{ANSWER}<|end|>", "user assistant", False),
    ],
)
def test_judge_of_carried_text(trained: str, context: str, *, expected: bool) -> None:
    assert is_carried_right(TEXTS, Outcome(trained=trained, context=context)) is expected
    assert not is_carried_right(TEXTS, Outcome(dropped="template_error"))


def test_a_cell_that_is_wrong_in_silence_writes_no_page() -> None:
    column = {label_of(one): Cell("right", "x") for one in FORMATS}
    with pytest.raises(SystemExit, match="wrong in silence: `messages` x Qwen3"):
        formats_page({"Qwen3": {**column, "`messages`": Cell(SILENT, SILENT)}}, {})


def test_every_format_is_there_by_name() -> None:
    page = (PROJECT / "docs" / "formats.md").read_text()
    read = {name_of(one) for one in FORMATS} | {"text", "tokenized"}
    shown = dict(re.findall(r"^### (.+)\n\n.+\n\n```json\n(.+)\n```\n\nTrained:\n\n```text\n⟦", page, re.MULTILINE))

    assert shown.keys() == read
    assert {name.partition(",")[0] for name in read} == {entry.name for entry in PUBLIC_LAYOUTS if entry.layout}
    for name, row in shown.items():
        assert detection_of(name, json.loads(row)).entry.name == name.partition(",")[0]


def test_every_layout_is_in_the_table() -> None:
    page = (PROJECT / "docs" / "formats.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    found = {line.split("`")[1]: line for line in reversed(lines) if "`" in line}

    assert found.keys() == {entry.name for entry in PUBLIC_LAYOUTS}
    assert {entry.name for entry in PUBLIC_LAYOUTS if entry.layout is None} == REFUSED.keys()
    for entry in PUBLIC_LAYOUTS:
        assert found[entry.name].count(" | ") == (len(COLUMNS) if entry.layout else 1)
        assert entry.layout or refusal_of(entry) in found[entry.name]
    assert "silently" not in page.replace("0 silently wrong", "")


@pytest.mark.full
def test_page_is_current() -> None:
    page = formats_page(formats_table(), examples())
    assert page == (PROJECT / "docs/formats.md").read_text(encoding="utf-8"), "run scripts/generate_docs"
