"""The page of served answers by family: what a cure promises stands in its cells."""

import re
from pathlib import Path

import pytest
from scripts.quirks.families import Family
from scripts.quirks.served import NUM_ROWS, lines_of, served_page
from scripts.quirks.served_families import SERVED_FAMILIES

PAGE = Path(__file__).parents[2] / "docs" / "served-families.md"


@pytest.mark.parametrize("name", ["Nemotron"])
def test_lines_of_a_family_are_current(tmp_path: Path, name: str) -> None:
    family = next(family for family in SERVED_FAMILIES if family.name == name)
    wanted = served_page({name: list(lines_of(family, tmp_path / "tokenizer"))})
    own = [line for line in wanted.splitlines() if line.startswith(f"| {name} |")]
    assert len(own) == 3
    assert [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {name} |")] == own
    assert "100%, 1.07 x, `truncate_history_thinking: false` | 100%, 1.89 x |" in own[2]


def test_every_family_has_its_lines() -> None:
    lines = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    families = [cells[0].removeprefix("| ") for cells in lines]
    for family in SERVED_FAMILIES:
        assert families.count(family.name) == 3


@pytest.mark.full
@pytest.mark.parametrize("family", SERVED_FAMILIES, ids=lambda family: family.name)
def test_some_rows_of_a_family_give_the_cells_on_the_page(tmp_path: Path, family: Family) -> None:
    numbers = (5, *range(20, 26))  # one in seven has one digit, as of 60: the shares are equal, and tokens about
    made = served_page({family.name: list(lines_of(family, tmp_path / "tokenizer", numbers))})
    lines, wanted = (
        [line for line in text.splitlines() if line.startswith(f"| {family.name} |")]
        for text in (made, PAGE.read_text())
    )
    assert len(lines) == len(wanted) == 3
    for line, on_page in zip(lines, wanted, strict=True):
        (texts, times), (wanted_texts, wanted_times) = _parted(line), _parted(on_page)
        assert texts.replace(f"({len(numbers)} dropped)", f"({NUM_ROWS} dropped)") == wanted_texts
        assert times == pytest.approx(wanted_times, abs=0.011)


def _parted(line: str) -> tuple[str, list[float]]:
    """Return a line without its multiples of tokens, and those."""
    return re.sub(r"[0-9.]+ x", "x", line), [float(number) for number in re.findall(r"([0-9.]+) x", line)]
