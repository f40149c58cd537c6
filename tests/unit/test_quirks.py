"""The table of quirky rows: nothing in it is wrong in silence, and the judge that says so tells right from wrong."""

import subprocess
import sys
from pathlib import Path

import pytest
from scripts.quirks.builds import Outcome, is_right
from scripts.quirks.families import FAMILIES
from scripts.quirks.page import ALL_FAMILIES
from scripts.quirks.rows import QUIRKS, Answer, Quirk

PROJECT = Path(__file__).parents[2]
QWEN = next(family for family in FAMILIES if family.name == "Qwen2.5")
CALL = Answer(content="I look.", calls=(("lookup", {"city": "Bern"}),))
ROW = Quirk(what="a call", row={}, answers=(CALL, Answer(content="Sunny.")), context=("How is it?",))
CALLED = 'I look.\n<tool_call>\n{"name": "lookup", "arguments": {"city": "Bern"}}\n</tool_call><|im_end|>\n'
TRAINED = f"{CALLED}\0Sunny.<|im_end|>\n"


@pytest.mark.parametrize(
    ("trained", "context", "expected"),
    [
        (TRAINED, "user\nHow is it?", True),
        (TRAINED, "user\n", False),
        (CALLED, "user\nHow is it?", False),
        (TRAINED.replace("<|im_end|>", "", 1), "How is it?", False),
        (TRAINED.replace('{"city": "Bern"}', '"{\\"city\\": \\"Bern\\"}"'), "How is it?", False),
        (TRAINED.replace("I look.", "NoneI look."), "How is it?", False),
        (f"How is it?{TRAINED}", "How is it?", False),
    ],
)
def test_judge_of_trained_text(trained: str, context: str, *, expected: bool) -> None:
    assert is_right(ROW, QWEN, Outcome(trained=trained, context=context)) is expected


def test_no_cell_is_wrong_in_silence() -> None:
    lines = [line for line in (PROJECT / "docs" / "quirks.md").read_text().splitlines() if line.startswith("| ")]
    table = {line.split(" | ")[0].removeprefix("| "): line for line in lines}

    assert len(QUIRKS) >= 70
    assert len(ALL_FAMILIES) == 11
    for quirk in QUIRKS:
        assert table[quirk.what].count(" | ") == len(ALL_FAMILIES)
        assert "silently" not in table[quirk.what]


@pytest.mark.full
def test_tables_are_current() -> None:
    pages = ("quirks.md", "formats.md")  # test_served_page.py has the third
    command = [sys.executable, str(PROJECT / "scripts" / "generate_quirks"), "--check", *pages]
    assert subprocess.run(command, check=False).returncode == 0
