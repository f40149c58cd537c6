"""Tables of cells that tests compare with builds, and pages show: JSON with a line for each row of the table."""

import json
from collections.abc import Mapping
from pathlib import Path

Cells = Mapping[str, Mapping[str, str]]


def read_cells(file: Path) -> dict[str, dict[str, str]]:
    """Return the cells of a file, by row and column."""
    cells: dict[str, dict[str, str]] = json.loads(file.read_text(encoding="utf-8"))
    return cells


def write_cells(file: Path, cells: Cells) -> None:
    """Write cells to a file."""
    lines = [f"{json.dumps(row)}: {json.dumps(by_column, ensure_ascii=False)}" for row, by_column in cells.items()]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
