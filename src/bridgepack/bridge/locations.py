"""Files and line numbers of the fields that findings and errors are about."""

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from bridgepack.errors import BridgepackError, Problem
from bridgepack.user_files import read_text

#: Endings of files with sections, whose lines are known.
SETTINGS_SUFFIXES = frozenset({".yaml", ".yml", ".toml"})
_TOML_TABLE = re.compile(r"\s*\[\[?([^\]]+)\]")
_TOML_KEY = re.compile(r"""\s*([\w.\s"'-]+?)\s*=""")


def line_of(file: Path, paths: Iterable[str]) -> int | None:
    """Return the 1-based line of the first of the paths that a YAML or TOML file contains; None for other files.

    A missing path has the line of the nearest section above it. Returns None if the lines are unknown, because the
    file changed or nests too deep.
    """
    if file.suffix.lower() not in SETTINGS_SUFFIXES:
        return None
    from ruamel.yaml.error import YAMLError

    try:
        lines = _lines(read_text(file, encoding="utf-8-sig"), file.suffix.lower() == ".toml")
    except (OSError, ValueError, YAMLError, RecursionError):
        return None
    for path in paths:
        while path and path not in lines:
            path = path.rpartition(".")[0]
        if path:
            return lines[path]
    return None


@contextmanager
def fields_in(file: Path | None, overrides: Collection[str] = ()) -> Iterator[None]:
    """Add a recipe's file to errors on its fields that are raised inside, and the line if the file has the field.

    A field that an override sets, or that the file leaves to its default, is not in the file.
    """
    try:
        yield
    except BridgepackError as error:
        if file is not None:
            error.problems = tuple(_with_place(problem, file, overrides) for problem in error.problems)
        raise


def _with_place(problem: Problem, file: Path, overrides: Collection[str]) -> Problem:
    field = problem.field
    if not field or problem.file or any(_is_within(field, path) or _is_within(path, field) for path in overrides):
        return problem
    line = line_of(file, [field])
    is_there = line is not None or file.suffix.lower() not in SETTINGS_SUFFIXES
    return replace(problem, file=str(file), line=line) if is_there else problem


def _is_within(path: str, section: str) -> bool:
    return path == section or path.startswith(f"{section}.")


@lru_cache(maxsize=4)
def _lines(text: str, is_toml: bool) -> dict[str, int]:
    from ruamel.yaml import YAML

    lines_of_paths = _toml_lines(text) if is_toml else _yaml_lines(YAML(typ="safe", pure=True).compose(text), "", set())
    lines: dict[str, int] = {}
    for path, line in lines_of_paths:
        lines.setdefault(path, line)
    return lines


def _yaml_lines(node: Any, above: str, node_ids: set[int]) -> Iterator[tuple[str, int]]:
    """Yield (path, line) of the keys of a composed node; a section repeated by an alias has its first lines."""
    if getattr(node, "id", "") != "mapping" or id(node) in node_ids:
        return
    node_ids.add(id(node))
    for key, value in node.value:
        yield f"{above}{key.value}", key.start_mark.line + 1
        yield from _yaml_lines(value, f"{above}{key.value}.", node_ids)


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
