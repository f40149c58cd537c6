"""Writes the cases of rules, and other long JSON of the tests, in few lines.

usage: python -m tests.support.format_cases
"""

import json
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
FILES = (
    *sorted((TESTS / "rules" / "cases").glob("*.json")),
    TESTS / "rules" / "base_run.json",
    *sorted((TESTS / "golden").glob("recipe_findings_*.json")),
    TESTS / "support" / "hub_configs.json",
)
WIDTH = 160
#: A file, then its list of cases or its one case: what lies deeper stays on one line, however long.
MOST_BREAKS = 2


def compact(value: Any, depth: int = 0) -> str:
    """Return JSON in which what fits in a line is on one line, and so is what lies deep; short fields share lines."""
    line = json.dumps(value, ensure_ascii=False)
    if depth + len(line) <= WIDTH or depth == MOST_BREAKS or not isinstance(value, (dict, list)):
        return line
    indent = " " * depth
    if isinstance(value, list):
        return "[\n" + ",\n".join(f"{indent} {compact(item, depth + 1)}" for item in value) + f"\n{indent}]"
    lines = [""]
    for name, item in value.items():
        field = f"{json.dumps(name)}: {compact(item, depth + 1)}"
        if lines[-1] and len(indent) + len(lines[-1]) + len(field) + 3 <= WIDTH:
            lines[-1] += f", {field}"
        else:
            lines.append(field)
    return "{\n" + ",\n".join(f"{indent} {field}" for field in lines[1:]) + f"\n{indent}}}"


def formatted(path: Path) -> str:
    return compact(json.loads(path.read_text(encoding="utf-8"))) + "\n"


if __name__ == "__main__":
    for one in FILES:
        one.write_text(formatted(one), encoding="utf-8")
