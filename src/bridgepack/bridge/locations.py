"""Where in a user's YAML or TOML file a field is written."""

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

_TOML_TABLE = re.compile(r"\s*\[\[?([^\]]+)\]")
_TOML_KEY = re.compile(r"""\s*([\w.\s"'-]+?)\s*=""")


def line_of(file: Path, paths: Iterable[str]) -> int | None:
    """Return the 1-based line of the first path that a YAML or TOML file writes; None in any other file.

    A path that is not written has the line of the nearest section above it that is. A file whose lines cannot be told,
    for it has changed meanwhile or nests too deep, has none.
    """
    if file.suffix.lower() not in {".yaml", ".yml", ".toml"}:
        return None
    from ruamel.yaml.error import YAMLError

    try:
        text = file.read_text(encoding="utf-8-sig")
        if file.suffix.lower() == ".toml":
            lines = _toml_lines(text)
            return next((line for path in paths if (line := _nearest(lines, path)) is not None), None)
        root = _nodes(text)
    except (OSError, ValueError, YAMLError, RecursionError):
        return None
    return next((line for path in paths if (line := _line(root, path.split("."))) is not None), None)


@lru_cache(maxsize=4)
def _nodes(text: str) -> Any:
    from ruamel.yaml import YAML

    return YAML(typ="rt", pure=True).load(text)


def _toml_lines(text: str) -> dict[str, int]:
    """Return dotted path -> line of the tables and keys of a TOML file, as far as single lines tell."""
    table, lines = "", dict[str, int]()
    for number, content in enumerate(text.splitlines(), 1):
        if header := _TOML_TABLE.match(content):
            table = f"{_plain(header[1])}."
            lines.setdefault(table[:-1], number)
        elif key := _TOML_KEY.match(content):
            lines.setdefault(table + _plain(key[1]), number)
    return lines


def _plain(path: str) -> str:
    return re.sub(r"[\s\"']", "", path)


def _nearest(lines: dict[str, int], path: str) -> int | None:
    while path and path not in lines:
        path = path.rpartition(".")[0]
    return lines.get(path)


def _line(node: Any, keys: list[str]) -> int | None:
    line = None
    for key in keys:
        positions = getattr(getattr(node, "lc", None), "data", None)
        if not positions or key not in positions:
            return line
        line = positions[key][0] + 1
        node = node[key]
    return line
