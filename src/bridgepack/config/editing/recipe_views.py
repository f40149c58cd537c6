"""What a recipe expression spells out, as dotted paths with their values: the check on an edit's outcome."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from bridgepack.config.editing.edits import REMOVE, Edit
from bridgepack.config.editing.python_entries import entries_of, may_hold_more, section_of
from bridgepack.config.editing.python_source import literal

View = dict[tuple[str, ...], Any]
"""Path -> literal value, or the source of an expression that is worked out at run time."""


def view_of(expression: ast.expr, names: Mapping[str, ast.expr]) -> View:
    """Return what an expression spells out, later overrides over what they override.

    Args:
        expression: gives a recipe, a section or a value.
        names: what local names stand for.
    """
    node = names.get(expression.id, expression) if isinstance(expression, ast.Name) else expression
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "override":
        return _overridden(node, node.func.value, names)
    value = literal(node)
    if value is not None:
        return _leaves(value[0])
    section = section_of(node)
    if section is None:
        return {(): ast.unparse(node)}
    view: View = {("()",): ast.unparse(section.func)} if isinstance(section, ast.Call) else {}
    for entry in entries_of(section):
        below = view_of(entry.value, names)
        view = _with(view, (entry.name or "**",), below)
    return view


def _overridden(call: ast.Call, base: ast.expr, names: Mapping[str, ast.expr]) -> View:
    changes = call.args[0] if call.args else call.keywords[0].value if call.keywords else None
    if not isinstance(changes, ast.Dict) or may_hold_more(entries_of(changes)):
        return {(): ast.unparse(call)}
    view = view_of(base, names)
    for entry in sorted(entries_of(changes), key=lambda entry: (entry.name or "").count(".")):
        view = _with(view, tuple((entry.name or "").split(".")), view_of(entry.value, names))
    return view


def view_after(view: View, edit: Edit) -> View:
    """Return what is spelled out after an edit."""
    if edit.value is REMOVE:
        return {path: value for path, value in view.items() if path[: len(edit.keys)] != edit.keys}
    return _with(view, edit.keys, _leaves(edit.value))


def _with(view: View, keys: tuple[str, ...], below: View) -> View:
    """Return a view with what is below a path replaced; an empty section above it is no longer empty."""
    kept = {
        path: value
        for path, value in view.items()
        if path[: len(keys)] != keys and not (keys[: len(path)] == path and (value is None or value == {}))
    }
    return kept | {(*keys, *path): value for path, value in below.items()}


def _leaves(value: Any) -> View:
    if not isinstance(value, Mapping) or not value:
        return {(): value}
    return {(str(key), *path): leaf for key, item in value.items() for path, leaf in _leaves(item).items()}
