"""Writes the cases of rules, and other long JSON of the tests, in few lines.

usage: python -m tests.support.format_cases
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
FILES = (
    *sorted((TESTS / "rules" / "cases").glob("*.json")),
    TESTS / "rules" / "base_run.json",
    TESTS / "golden" / "recipe_findings.json",
    TESTS / "support" / "hub_configs.json",
)
WIDTH = 160
#: A file, then its list of cases or its one case: what lies deeper stays on one line, however long.
MOST_BREAKS = 2


def compact(value: Any, depth: int = 0) -> str:
    """Return JSON in which what fits in a line is on one line, and so is what lies deep."""
    line = json.dumps(value, ensure_ascii=False)
    if depth + len(line) <= WIDTH or depth == MOST_BREAKS or not isinstance(value, (dict, list)):
        return line
    if isinstance(value, dict):
        opening, closing = "{}"
        items = [f"{json.dumps(name)}: {compact(item, depth + 1)}" for name, item in value.items()]
    else:
        opening, closing = "[]"
        items = [compact(item, depth + 1) for item in value]
    indent = " " * depth
    return f"{opening}\n" + ",\n".join(f"{indent} {item}" for item in items) + f"\n{indent}{closing}"


def formatted(path: Path) -> str:
    """Return a file's content as it should be."""
    return compact(json.loads(path.read_text(encoding="utf-8"))) + "\n"


if __name__ == "__main__":
    for one in FILES:
        one.write_text(formatted(one), encoding="utf-8")
