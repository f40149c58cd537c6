"""Which lines of a Python file give a setting: they are shown, for Python is not rewritten."""

import ast
from collections.abc import Iterator
from pathlib import PurePath
from typing import NoReturn

from bridgepack.config.editing.edits import CannotEditError, Edit, Kind, refuse


def refuse_python(text: str, edit: Edit, function: str | None, kind: Kind) -> NoReturn:
    """Raise for an edit of a Python file, with the lines that give its value now, or the line to add.

    `function` gives what is of the `kind`; it is None for the only one of the file.

    Raises:
        CannotEditError: always.
    """
    try:
        tree: ast.AST = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise CannotEditError(f"the file is not Python: {error}. Correct it first.") from None
    named = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function)
    found = [
        f"line {value.lineno}, which has {ast.unparse(value)}"
        for path, value in _values(next(named, tree), "", edit.keys[0])
        if path == edit.path
    ]
    new = f"Path({str(edit.value)!r})" if isinstance(edit.value, PurePath) else repr(edit.value)
    if found:
        advice = f"Write {new} in {' and '.join(found)}."
    elif kind == "recipe":
        advice = f"Return the recipe with .override({{{edit.path!r}: {new}}})."
    else:
        advice = f"Before the config is returned, write cfg.{edit.path} = {new}, cfg being the config."
    refuse(edit, "Python is not rewritten", advice)


def _values(node: ast.AST, path: str, section: str) -> Iterator[tuple[str, ast.expr]]:
    """Yield (dotted path, value) of each keyword, entry of a dict, and assignment below a node.

    Example: `cfg.a.b = C(d=1)` -> `("a.b", C(d=1))`, `("a.b.d", 1)`.
    """
    prefix = f"{path}." if path else ""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            below = prefix + str(key.value) if isinstance(key, ast.Constant) else path
            yield below, value
            yield from _values(value, below, section)
        return
    if isinstance(node, ast.keyword) and node.arg:
        path = f"{prefix}{node.arg}"
        yield path, node.value
    elif isinstance(node, ast.Assign):
        name, _, attributes = ast.unparse(node.targets[0]).partition(".")
        path = attributes or (name if name == section else "")
        yield path, node.value
    for child in ast.iter_child_nodes(node):
        yield from _values(child, path, section)
