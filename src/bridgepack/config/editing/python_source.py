"""Python source as a tree whose nodes lie at offsets of the text, and the values that can be read off it."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from bridgepack.config.editing.edits import CannotEditError, Edit, refuse

Function = ast.FunctionDef | ast.AsyncFunctionDef
_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A parsed file.

    Attributes:
        text: without byte order mark.
        tree: of the text.
        line_offsets: where each line starts in the text.
    """

    text: str
    tree: ast.Module
    line_offsets: tuple[int, ...]

    def start(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        """Return the offset of a node's first character."""
        return self._offset(node.lineno, node.col_offset)

    def end(self, node: ast.expr | ast.stmt | ast.keyword) -> int:
        """Return the offset after a node's last character."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.end_lineno, node.end_col_offset)

    def segment(self, node: ast.expr | ast.stmt) -> str:
        """Return the text of a node."""
        return self.text[self.start(node) : self.end(node)]

    def _offset(self, line: int, column_bytes: int) -> int:
        start = self.line_offsets[line - 1]
        before = self.text[start : start + column_bytes].encode("utf-8")[:column_bytes]
        return start + len(before.decode("utf-8"))


def parse_python(text: str) -> Source:
    """Return a file with its tree.

    Raises:
        CannotEditError: when it is not Python.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise CannotEditError(f"the file is not Python: {error}. Edit it by hand.") from None
    offsets = (0, *(match.end() for match in _LINE_END.finditer(text)))
    return Source(text=text, tree=tree, line_offsets=offsets)


def find_function(tree: ast.Module, name: str | None, suffix: str) -> Function:
    """Return a function of a file by name, or the only one with a suffix.

    Raises:
        CannotEditError: when it is not defined there, or not clear which is meant.
    """
    functions = [node for node in tree.body if isinstance(node, Function)]
    if name is None:
        matching = [node for node in functions if node.name.endswith(suffix)] or functions
    else:
        matching = [node for node in functions if node.name == name][-1:]
    if len(matching) == 1:
        return matching[0]
    known = ", ".join(node.name for node in functions) or "no functions"
    if name is None:
        raise CannotEditError(f"the file defines {known}; say which one to edit: FILE.py:FUNCTION.")
    raise CannotEditError(f"the file does not define the function {name}; it defines {known}. Edit the file that does.")


def returns_of(function: Function) -> list[ast.Return]:
    """Return the return statements of a function, those of functions inside it left out."""
    return [node for node in own_nodes(function) if isinstance(node, ast.Return)]


def own_nodes(function: Function) -> Iterator[ast.AST]:
    """Give the nodes of a function's body in the order of the text, without functions and classes inside it."""
    inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
    todo: list[ast.AST] = list(reversed(function.body))
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, inner):
            todo += reversed(list(ast.iter_child_nodes(node)))


def literal(node: ast.expr) -> tuple[Any] | None:
    """Return the value that an expression spells out, in a tuple; None for one that is worked out at run time.

    `Path("...")` counts as spelled out.
    """
    if isinstance(node, ast.Call) and called_name(node) == "Path" and len(node.args) == 1 and not node.keywords:
        inner = literal(node.args[0])
        return (PurePath(inner[0]),) if inner and isinstance(inner[0], str) else None
    try:
        return (ast.literal_eval(node),)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def called_name(node: ast.Call) -> str | None:
    """Return the last name of what a call calls: `Config` of `package.Config(...)`."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else None


def python_value(value: Any, edit: Edit, old: str = "") -> str:
    """Return a value as Python source.

    Args:
        value: a plain value or a path of the file system.
        edit: the edit it belongs to.
        old: source that it replaces, whose quotes it takes.

    Raises:
        CannotEditError: for a number that has no literal.
    """
    if isinstance(value, Mapping):
        items = (f"{python_value(key, edit, old)}: {python_value(item, edit, old)}" for key, item in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(python_value(item, edit, old) for item in value) + "]"
    if isinstance(value, PurePath):
        return f"Path({python_value(str(value), edit, old)})"
    if isinstance(value, float) and not math.isfinite(value):
        refuse(edit, "Python has no literal for it")
    return _quoted(value, old) if isinstance(value, str) else repr(value)


def _quoted(text: str, old: str) -> str:
    if "'" in old and '"' not in old:
        return repr(text)
    return repr(text) if '"' in text else '"' + repr(text + "'")[1:-2] + '"'
