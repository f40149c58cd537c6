"""Adds `from pathlib import Path` to a Python file."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from bridgepack.config.editing.edits import Edit, refuse
from bridgepack.config.editing.python_source import Source
from bridgepack.config.editing.splicing import Splice, line_start, newline_of, next_line, spliced

_IMPORT = "from pathlib import Path"


def with_path_import(source: Source, edit: Edit) -> str:
    """Return a file in which `Path` is that of pathlib.

    Raises:
        CannotEditError: when the file uses the name for something else.
    """
    body = source.tree.body
    if any(_is_path_import(node) for node in body):
        return source.text
    if "Path" in _bound_names(source.tree):
        refuse(edit, "the file uses the name Path for something else")
    newline = newline_of(source.text)
    is_head = [_is_docstring(node) or _is_future(node) for node in body]
    num_head = is_head.index(False) if False in is_head else len(body)
    imports = [node for node in body[num_head:] if isinstance(node, ast.Import | ast.ImportFrom)]
    if imports:
        at = line_start(source.text, source.start(imports[0]))
        return spliced(source.text, [Splice(start=at, end=at, text=_IMPORT + newline)])
    if num_head:
        at = next_line(source.text, source.end(body[num_head - 1]))
        return spliced(source.text, [Splice(start=at, end=at, text=newline + _IMPORT + newline)])
    at = line_start(source.text, _first_offset(source, body[0]))
    return spliced(source.text, [Splice(start=at, end=at, text=_IMPORT + newline * 3)])


def _first_offset(source: Source, node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return source.start(decorators[0]) if decorators else source.start(node)


def _is_path_import(node: ast.stmt) -> bool:
    if not isinstance(node, ast.ImportFrom) or node.module != "pathlib":
        return False
    return any(name.name == "Path" and name.asname in {None, "Path"} for name in node.names)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _bound_names(tree: ast.Module) -> Iterator[str]:
    """Give the names that any part of a file binds, imports of pathlib's Path left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Import | ast.ImportFrom) and not _is_path_import(node):
            yield from (name.asname or name.name for name in node.names)
