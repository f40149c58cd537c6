"""The recipe functions of `recipes/*.py`, found without importing them."""

from __future__ import annotations

import ast
from pathlib import Path

RECIPES = Path(__file__).parents[2] / "recipes"


def catalogue() -> list[str]:
    """Return `FILE.py:FUNCTION` of every recipe, sorted."""
    return sorted(
        f"{path}:{node.name}"
        for path in RECIPES.glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.endswith("_recipe") and not node.name.startswith("_")
    )


def function_of(target: str) -> str:
    """Return the name of the function in `FILE.py:FUNCTION`."""
    return target.rpartition(":")[2]
