"""The recipe functions of `recipes/*.py`, found without importing them."""

import ast
from pathlib import Path
from typing import Any

#: The least that a recipe says, as plain values and in files.
SMALL: dict[str, Any] = {
    "name": "small",
    "data": {"train": "a.jsonl"},
    "tokenizer": {"name_or_path": "tokenizer"},
    "packing": {"packed_sequence_size": 16},
}
SMALL_YAML = """\
name: small
data: {train: a.jsonl}
tokenizer: {name_or_path: tokenizer}
packing:
  packed_sequence_size: 16
"""
SMALL_TOML = """\
name = "small"
[data]
train = "a.jsonl"
[tokenizer]
name_or_path = "tokenizer"
[packing]
packed_sequence_size = 16
"""
RECIPES = Path(__file__).parents[2] / "recipes"


def catalogue() -> list[str]:
    """Return `FILE.py:FUNCTION` of every recipe, sorted: functions, and rows of tables."""
    return sorted(
        f"{path}:{name}"
        for path in RECIPES.glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        for name in _names(node)
        if name.endswith("_recipe") and not name.startswith("_")
    )


def function_of(target: str) -> str:
    return target.rpartition(":")[2]


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return [node.name] if isinstance(node, ast.FunctionDef) else []
