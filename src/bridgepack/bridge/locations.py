"""Line numbers of fields in a user's YAML or TOML file."""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

_TOML_TABLE = re.compile(r"\s*\[\[?([^\]]+)\]")
_TOML_KEY = re.compile(r"""\s*([\w.\s"'-]+?)\s*=""")


def line_of(file: Path, paths: Iterable[str]) -> int | None:
    """Return the 1-based line of the first of the paths that a YAML or TOML file contains; None for other files.

    A missing path has the line of the nearest section above it. Returns None if the lines are unknown, because the
    file changed or nests too deep.
    """
    if file.suffix.lower() not in {".yaml", ".yml", ".toml"}:
        return None
    from ruamel.yaml.error import YAMLError

    try:
        lines = _lines(file.read_text(encoding="utf-8-sig"), file.suffix.lower() == ".toml")
    except (OSError, ValueError, YAMLError, RecursionError):
        return None
    for path in paths:
        while path and path not in lines:
            path = path.rpartition(".")[0]
        if path:
            return lines[path]
    return None


@lru_cache(maxsize=4)
def _lines(text: str, is_toml: bool) -> dict[str, int]:
    from ruamel.yaml import YAML

    found = _toml_lines(text) if is_toml else _yaml_lines(YAML(typ="safe", pure=True).compose(text), "", set())
    lines: dict[str, int] = {}
    for path, line in found:
        lines.setdefault(path, line)
    return lines


def _yaml_lines(node: Any, above: str, seen: set[int]) -> Iterator[tuple[str, int]]:
    """Yield (path, line) of the keys of a composed node; a section repeated by an alias has its first lines."""
    if getattr(node, "id", "") != "mapping" or id(node) in seen:
        return
    seen.add(id(node))
    for key, value in node.value:
        yield f"{above}{key.value}", key.start_mark.line + 1
        yield from _yaml_lines(value, f"{above}{key.value}.", seen)


def _toml_lines(text: str) -> Iterator[tuple[str, int]]:
    table = ""
    for number, content in enumerate(text.splitlines(), 1):
        if header := _TOML_TABLE.match(content):
            table = f"{_plain(header[1])}."
            yield table[:-1], number
        elif key := _TOML_KEY.match(content):
            yield table + _plain(key[1]), number


def _plain(path: str) -> str:
    return re.sub(r"[\s\"']", "", path)
