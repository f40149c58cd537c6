"""Where in a user's YAML file a field is written."""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any


def line_of(file: Path, paths: Iterable[str]) -> int | None:
    """Return the 1-based line of the first path that a YAML file writes; None in any other file.

    A path that is not written has the line of the nearest section above it that is. A file whose lines cannot be told,
    for it has changed meanwhile or nests too deep, has none.
    """
    if file.suffix.lower() not in {".yaml", ".yml"}:
        return None
    from ruamel.yaml.error import YAMLError

    try:
        root = _nodes(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, YAMLError, RecursionError):
        return None
    return next((line for path in paths if (line := _line(root, path.split("."))) is not None), None)


@lru_cache(maxsize=4)
def _nodes(text: str) -> Any:
    from ruamel.yaml import YAML

    return YAML(typ="rt", pure=True).load(text)


def _line(node: Any, keys: list[str]) -> int | None:
    line = None
    for key in keys:
        positions = getattr(getattr(node, "lc", None), "data", None)
        if not positions or key not in positions:
            return line
        line = positions[key][0] + 1
        node = node[key]
    return line
