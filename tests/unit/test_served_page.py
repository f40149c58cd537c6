"""Served answers by family: the cells on the page are what encoding gives; what a cure promises stands in them."""

import os
from pathlib import Path

import pytest
from scripts.docs_pages.cell_files import read_cells, write_cells
from scripts.docs_pages.served import FILE, served_page
from scripts.quirks.served import NUMBERS, served_cells
from scripts.quirks.served_rows import SETS

from tests.support.golden import renewed_by
from tests.zoo.families import Family
from tests.zoo.served import SERVED_FAMILIES

ROWS = [f"{family.name}: {name}" for family in SERVED_FAMILIES for name in SETS]
QUICK = "Nemotron"


@pytest.mark.parametrize(
    "family",
    [pytest.param(family, marks=() if family.name == QUICK else pytest.mark.full) for family in SERVED_FAMILIES],
    ids=lambda family: family.name,
)
def test_cells_of_a_family_are_what_encoding_gives(tmp_path: Path, family: Family) -> None:
    cells = served_cells(family, tmp_path / "tokenizer")
    if os.environ.get("BRIDGEPACK_REGENERATE"):
        rows = {**read_cells(FILE), **cells}
        write_cells(FILE, {row: rows[row] for row in ROWS if row in rows})
    assert {row: on_page for row, on_page in read_cells(FILE).items() if row in cells} == cells, renewed_by(__file__)


def test_cure_of_a_family_with_a_switch() -> None:
    cells = read_cells(FILE)["Nemotron: agents"]
    assert (cells["default"], cells["boundary"]) == ("0%", "33%, 1.00 x")
    assert cells["switch"] == "100%, 1.07 x, `truncate_history_thinking: false`"
    assert cells["split"] == "100%, 1.89 x"


def test_page_has_the_lines_of_every_family() -> None:
    lines = [line.removeprefix("| ").split(" | ") for line in served_page().splitlines() if line.startswith("| ")]
    assert list(read_cells(FILE)) == ROWS
    assert [f"{family}: {name}" for family, name, *_ in lines if name in SETS] == ROWS
    assert len(NUMBERS) == 7
    assert "Seven conversations a set" in served_page()
