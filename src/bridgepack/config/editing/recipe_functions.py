"""Edits a Python function that returns an `SFTRecipe`: its literals, or an `.override({...})` where it has none."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bridgepack.config.editing.edits import REMOVE, CannotEditError, Edit, is_same, refuse
from bridgepack.config.editing.python_entries import (
    added_entry,
    entries_of,
    find_index,
    may_hold_more,
    removed_entry,
    section_of,
)
from bridgepack.config.editing.python_source import (
    Source,
    called_name,
    find_function,
    literal,
    own_nodes,
    parse_python,
    python_value,
    returns_of,
)
from bridgepack.config.editing.recipe_views import View, view_after, view_of
from bridgepack.config.editing.splicing import BYTE_ORDER_MARK, Splice, spliced

_RECIPE_CALLS = frozenset({"SFTRecipe", "from_mapping", "override", "load_recipe", "model_validate"})
_ATOMS = (ast.Call, ast.Name, ast.Attribute, ast.Subscript)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Recipe:
    """The expression that a recipe comes from.

    Attributes:
        definition: the function or assignment it is in.
        expression: what is returned or assigned.
        locals: what local names that are bound once stand for, where that is a call.
    """

    definition: ast.stmt
    expression: ast.expr
    locals: Mapping[str, ast.expr]

    def follow(self, node: ast.expr) -> ast.expr:
        """Return what an expression stands for, if it is one of the locals."""
        return self.locals.get(node.id, node) if isinstance(node, ast.Name) else node


def edited_recipe_function(text: str, edits: Sequence[Edit], function: str | None) -> str:
    """Return a Python file after edits of the recipe that one of its functions returns.

    Raises:
        CannotEditError: when the function has several returns, or hides what is to be removed.
    """
    body = text.removeprefix(BYTE_ORDER_MARK)
    first = parse_python(body)
    recipe = _find_recipe(first, function)
    expected = view_of(recipe.expression, recipe.locals)
    for edit in edits:
        source = parse_python(body)
        body = spliced(body, _splices(source, _find_recipe(source, function), edit))
        expected = view_after(expected, edit)
    last = parse_python(body)
    found = _find_recipe(last, function)
    view = view_of(found.expression, found.locals)
    assert is_same(_filled(view), _filled(expected)), f"edited Python reads {view!r}, not {expected!r}"
    assert _others(first, recipe) == _others(last, found)
    return text[: len(text) - len(text.removeprefix(BYTE_ORDER_MARK))] + body


def _filled(view: View) -> View:
    """Return a view without empty sections, which stay where all entries were removed."""
    return {path: value for path, value in view.items() if value != {}}


def _others(source: Source, recipe: _Recipe) -> list[str]:
    return [ast.dump(node) for node in source.tree.body if node is not recipe.definition]


def _find_recipe(source: Source, function: str | None) -> _Recipe:
    assigned = _assignment(source.tree, function)
    if assigned is not None:
        return assigned
    definition = find_function(source.tree, function, "_recipe")
    returns = returns_of(definition)
    if len(returns) != 1 or returns[0].value is None:
        raise CannotEditError(
            f"{definition.name} has {len(returns)} return statements; only a function with one can be edited. "
            "Edit it by hand."
        )
    names = _single_assignments(definition)
    return _Recipe(definition=definition, expression=returns[0].value, locals=names)


def _assignment(tree: ast.Module, name: str | None) -> _Recipe | None:
    """Return the recipe that a file assigns to a name instead of returning it from a function."""
    for node in reversed(tree.body):
        if isinstance(node, ast.Assign) and name in [one.id for one in node.targets if isinstance(one, ast.Name)]:
            if not isinstance(node.value, ast.Call) or called_name(node.value) not in _RECIPE_CALLS:
                raise CannotEditError(f"{name} is assigned something else than a recipe. Edit it by hand.")
            return _Recipe(definition=node, expression=node.value, locals={})
    return None


def _single_assignments(definition: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.expr]:
    """Return the local names bound once, by a plain assignment of a call in the function's own block."""
    bound = [node.id for node in ast.walk(definition) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    bound += [node.arg for node in ast.walk(definition) if isinstance(node, ast.arg)]
    bound += [name for node in own_nodes(definition) if isinstance(node, ast.Global) for name in node.names]
    values: dict[str, ast.expr] = {}
    for node in definition.body:
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        target = node.target if isinstance(node, ast.AnnAssign) else target
        if isinstance(target, ast.Name) and bound.count(target.id) == 1:
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            if isinstance(value, ast.Call) and called_name(value) != "dict":
                values[target.id] = value
    return values


def _splices(source: Source, recipe: _Recipe, edit: Edit) -> list[Splice]:
    found = _in_expression(source, recipe, recipe.expression, edit)
    if found is not None:
        return found
    if edit.value is REMOVE:
        refuse(edit, "the function does not spell it out as a keyword or in a dict")
    return _with_override(source, recipe, edit)


def _in_expression(source: Source, recipe: _Recipe, expression: ast.expr, edit: Edit) -> list[Splice] | None:
    """Return the change of an expression that spells out where a path is; None when another override is needed."""
    node = recipe.follow(expression)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "override":
        return _in_override(source, recipe, node, edit)
    return _in_section(source, recipe, node, edit.keys, edit)


def _in_override(source: Source, recipe: _Recipe, call: ast.Call, edit: Edit) -> list[Splice] | None:
    assert isinstance(call.func, ast.Attribute)
    changes = call.args[0] if call.args else call.keywords[0].value if call.keywords else None
    if not isinstance(changes, ast.Dict) or may_hold_more(entries_of(changes)):
        return None
    entries = entries_of(changes)
    names = [entry.name or "" for entry in entries]
    if any(name.startswith(f"{edit.path}.") for name in names):
        return None
    index = find_index(entries, edit.path)
    if index is not None:
        if edit.value is REMOVE or literal(entries[index].value) is None:
            return None
        return _replaced(source, entries[index].value, edit)
    is_touched = any(edit.path.startswith(f"{name}.") for name in names)
    inner = None if is_touched else _in_expression(source, recipe, call.func.value, edit)
    if inner is not None or edit.value is REMOVE:
        return inner
    return added_entry(source, changes, f"{python_value(edit.path, edit)}: {python_value(edit.value, edit)}")


def _in_section(
    source: Source, recipe: _Recipe, expression: ast.expr, keys: Sequence[str], edit: Edit
) -> list[Splice] | None:
    node = section_of(recipe.follow(expression))
    if node is None:
        return None
    entries = entries_of(node)
    index = find_index(entries, keys[0])
    if index is None:
        if may_hold_more(entries):
            return None
        if edit.value is REMOVE:
            return []
        return None if len(keys) > 1 else added_entry(source, node, _new_entry(node, keys[0], edit))
    value = entries[index].value
    if len(keys) > 1:
        return _in_section(source, recipe, value, keys[1:], edit)
    if edit.value is REMOVE:
        is_single = sum(entry.name in {keys[0], None} for entry in entries) == 1
        return [removed_entry(source, node, index, edit)] if is_single else None
    return None if literal(value) is None else _replaced(source, value, edit)


def _new_entry(node: ast.Call | ast.Dict, name: str, edit: Edit) -> str:
    value = python_value(edit.value, edit)
    return f"{name}={value}" if isinstance(node, ast.Call) else f"{python_value(name, edit)}: {value}"


def _replaced(source: Source, node: ast.expr, edit: Edit) -> list[Splice]:
    old = literal(node)
    if old is not None and is_same(old[0], edit.value):
        return []
    segment = source.segment(node)
    if "\n" in segment and "#" in segment:
        refuse(edit, "comments stand inside its old value")
    return [Splice(start=source.start(node), end=source.end(node), text=python_value(edit.value, edit, segment))]


def _with_override(source: Source, recipe: _Recipe, edit: Edit) -> list[Splice]:
    node = recipe.expression
    start, end = source.start(node), source.end(node)
    call = f".override({{{python_value(edit.path, edit)}: {python_value(edit.value, edit)}}})"
    if isinstance(node, _ATOMS):
        return [Splice(start=end, end=end, text=call)]
    return [Splice(start=start, end=start, text="("), Splice(start=end, end=end, text=f"){call}")]
