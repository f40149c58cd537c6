"""The table of quirky rows: nothing in it is wrong in silence, and the judge that says so tells right from wrong."""

import os
from pathlib import Path

import pytest
from scripts.docs_pages.cell_files import read_cells, write_cells
from scripts.docs_pages.quirks import FILE, page_of_cells, quirks_page
from scripts.quirks.builds import Outcome, is_right
from scripts.quirks.cells import ALL_FAMILIES, SILENT, cells_of
from scripts.quirks.rows import QUIRKS, Answer, Quirk

from tests.support.golden import renewed_by
from tests.zoo.families import FAMILIES, Family

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
    cells = read_cells(FILE)
    assert list(cells) == [quirk.what for quirk in QUIRKS]
    assert len(QUIRKS) >= 70
    assert len(ALL_FAMILIES) == 11
    for by_family in cells.values():
        assert list(by_family) == [family.name for family in ALL_FAMILIES]
        assert not [cell for cell in by_family.values() if SILENT in cell]


@pytest.mark.full
@pytest.mark.parametrize("family", ALL_FAMILIES, ids=lambda family: family.name)
def test_cells_of_a_family_are_what_builds_give(tmp_path: Path, family: Family) -> None:
    cells = cells_of(family, tmp_path)
    if os.environ.get("BRIDGEPACK_REGENERATE"):
        _write(family, cells)
    assert {what: by_family[family.name] for what, by_family in read_cells(FILE).items()} == cells, renewed_by(__file__)


def _write(family: Family, cells: dict[str, str]) -> None:
    before, names = read_cells(FILE), [family.name for family in ALL_FAMILIES]
    rows = {quirk.what: {**before.get(quirk.what, {}), family.name: cells[quirk.what]} for quirk in QUIRKS}
    write_cells(FILE, {what: {name: row[name] for name in names if name in row} for what, row in rows.items()})


def test_page_has_a_line_for_each_kind_of_row_and_counts_the_cells() -> None:
    page = page_of_cells({"plain": {"A": "✓", "B": "✗ why"}, "calls": {"A": "! tools", "B": "! tools"}})
    assert "2 kinds of rows and 2 families: 1 right, 0 fixed, 1 dropped, 2 reported, 0 silently wrong.\n" in page
    assert page.endswith("| row | A | B |\n|---|---|---|\n| plain | ✓ | ✗ why |\n| calls | all: ! tools |  |\n")
    assert len([line for line in quirks_page().splitlines() if line.count(" | ") == len(ALL_FAMILIES)]) > len(QUIRKS)
