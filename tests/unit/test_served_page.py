"""The page of served answers by family: what a cure promises stands in its cells."""

from pathlib import Path

import pytest
from scripts.quirks.served import lines_of, served_page
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
