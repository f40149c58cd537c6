"""Edits a Python function that returns Megatron-Bridge's `ConfigContainer`: assignments such as `cfg.model.x = 4`."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bridgepack.config.editing.edits import REMOVE, CannotEditError, Edit, has_file_path, is_same, refuse
from bridgepack.config.editing.python_entries import added_entry, entries_of, find_index, may_hold_more, removed_entry
from bridgepack.config.editing.python_imports import with_path_import
from bridgepack.config.editing.python_source import (
    Function,
    Source,
    find_function,
    literal,
    own_nodes,
    parse_python,
    python_value,
    returns_of,
)
from bridgepack.config.editing.splicing import BYTE_ORDER_MARK, Splice, indentation, newline_of, spliced

#: Fields of Megatron-Bridge 0.6 that hold a dict or None, whose keys a dotted path may name.
_MAPPING_FIELDS = frozenset({"dataset_kwargs", "hf_tokenizer_kwargs", "sp_tokenizer_kwargs", "env_vars", "mlflow_tags"})

Chain = tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Target:
    """What an edit assigns to.

    Attributes:
        chain: the variable and the names after it.
        mapping: the part of it that leads to a dict; None when all of it are attributes.
    """

    chain: Chain
    mapping: Chain | None

    def assignment(self, edit: Edit, old: str = "") -> str:
        """Return the statement that makes the edit whatever was assigned before."""
        if self.mapping is None:
            return f"{'.'.join(self.chain)} = {python_value(edit.value, edit, old)}"
        holder, key = ".".join(self.mapping), python_value(self.chain[-1], edit)
        if edit.value is REMOVE:
            return f"{holder} = {{key: value for key, value in ({holder} or {{}}).items() if key != {key}}}"
        return f"{holder} = {{**({holder} or {{}}), {key}: {python_value(edit.value, edit)}}}"


def edited_container_function(text: str, edits: Sequence[Edit], function: str | None) -> str:
    """Return a Python file after edits of the configuration that one of its functions returns.

    Raises:
        CannotEditError: when the function returns an expression instead of a variable, or an attribute is to go.
    """
    body = text.removeprefix(BYTE_ORDER_MARK)
    for edit in edits:
        body = _with_edit(body, edit, function)
    return text[: len(text) - len(text.removeprefix(BYTE_ORDER_MARK))] + body


def _with_edit(text: str, edit: Edit, function: str | None) -> str:
    source = parse_python(text)
    definition = find_function(source.tree, function, "_config")
    returns = returns_of(definition)
    names = [_returned_name(one, edit) for one in returns]
    if not names:
        raise CannotEditError(f"{definition.name} returns nothing. Edit it by hand.", edit)
    target = _target(edit, names[0])
    splices = _in_place(source, definition, target, edit) if len(set(names)) == 1 else None
    if splices is None:
        pairs = zip(returns, names, strict=True)
        splices = [_before(source, one, _target(edit, name).assignment(edit)) for one, name in pairs]
    result = spliced(text, splices)
    if splices and edit.value is not REMOVE and has_file_path(edit.value):
        result = with_path_import(parse_python(result), edit)
    _check(source, parse_python(result), function, [_target(edit, name) for name in names])
    return result


def _returned_name(node: ast.Return, edit: Edit) -> str:
    if not isinstance(node.value, ast.Name):
        expression = ast.unparse(node.value) if node.value is not None else "None"
        lines = f"`cfg = {expression}`, `{_target(edit, 'cfg').assignment(edit)}`, `return cfg`"
        refuse(edit, "the function returns an expression, not a variable", f"Write these lines instead: {lines}.")
    return node.value.id


def _target(edit: Edit, name: str) -> _Target:
    keys = edit.keys
    if not all(key.isidentifier() for key in keys[:-1]):
        refuse(edit, "its path holds a name that Python does not allow")
    holders = [depth for depth, key in enumerate(keys[:-1], 1) if key in _MAPPING_FIELDS]
    if holders and holders[0] < len(keys) - 1:
        refuse(edit, "it lies more than one level deep in a dict")
    if holders:
        return _Target(chain=(name, *keys), mapping=(name, *keys[:-1]))
    if edit.value is REMOVE:
        refuse(edit, "an attribute of a configuration always has a value", f"Set {edit.path} to its default by hand.")
    if not keys[-1].isidentifier():
        refuse(edit, "its path holds a name that Python does not allow")
    return _Target(chain=(name, *keys), mapping=None)


def _before(source: Source, node: ast.Return, statement: str) -> Splice:
    start = source.start(node)
    indent = indentation(source.text, start)
    separator = "; " if indent is None else newline_of(source.text) + indent
    return Splice(start=start, end=start, text=statement + separator)


def _in_place(source: Source, definition: Function, target: _Target, edit: Edit) -> list[Splice] | None:
    """Return the change of the statement that decides a value; None when no literal decides it."""
    statement = _deciding_statement(definition, target)
    if statement is None:
        return None
    chain, value = _assigned(statement)
    assert value is not None
    if chain == target.mapping:
        return _in_dict(source, value, edit) if isinstance(value, ast.Dict) else None
    old = literal(value)
    if old is None or edit.value is REMOVE:
        return None
    return _replaced(source, value, edit)


def _in_dict(source: Source, node: ast.Dict, edit: Edit) -> list[Splice] | None:
    entries, name = entries_of(node), edit.keys[-1]
    index = find_index(entries, name)
    if edit.value is REMOVE:
        if may_hold_more(entries):
            return None
        return [] if index is None else [removed_entry(source, node, index, edit)]
    if index is None:
        if entries and entries[-1].name is None:
            return None
        return added_entry(source, node, f"{python_value(name, edit)}: {python_value(edit.value, edit)}")
    value = entries[index].value
    return None if literal(value) is None else _replaced(source, value, edit)


def _replaced(source: Source, node: ast.expr, edit: Edit) -> list[Splice]:
    old, segment = literal(node), source.segment(node)
    if old is not None and is_same(old[0], edit.value):
        return []
    if "\n" in segment and "#" in segment:
        refuse(edit, "comments stand inside its old value")
    return [Splice(start=source.start(node), end=source.end(node), text=python_value(edit.value, edit, segment))]


def _deciding_statement(definition: Function, target: _Target) -> ast.stmt | None:
    """Return the last assignment that always runs on which nothing after it depends; None when there is none."""
    for index in reversed(range(len(definition.body))):
        statement = definition.body[index]
        chain, value = _assigned(statement)
        if value is not None and chain in {target.chain, target.mapping} - {None}:
            later = definition.body[index + 1 :]
            has_early_return = any(one.lineno < statement.lineno for one in returns_of(definition))
            return None if has_early_return or any(_depends_on(one, target) for one in later) else statement
    return None


def _assigned(statement: ast.stmt) -> tuple[Chain | None, ast.expr | None]:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        return _chain(statement.targets[0]), statement.value
    if isinstance(statement, ast.AnnAssign):
        return _chain(statement.target), statement.value
    return None, None


def _chain(node: ast.AST) -> Chain | None:
    """Return `cfg.a["b"]` as its names; None for other expressions."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        below, name = _chain(node.value), node.attr
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        below, name = _chain(node.value), str(node.slice.value)
    else:
        return None
    return None if below is None else (*below, name)


def _depends_on(statement: ast.stmt, target: _Target) -> bool:
    """Say whether a statement assigns or reads a value, what it is part of, or a part of it."""
    if isinstance(statement, ast.Return) and isinstance(statement.value, ast.Name):
        return False
    pairs = ((chain, min(len(chain), len(target.chain))) for chain in _chains(statement))
    return any(chain[:common] == target.chain[:common] for chain, common in pairs)


def _chains(node: ast.AST) -> Iterator[Chain]:
    """Give the longest chains in a statement; of a method that is called, what it is called on."""
    chain = _chain(node)
    if chain is not None:
        yield chain
        return
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield from _chains(node.func.value)
        children: list[ast.AST] = [*node.args, *node.keywords]
    else:
        children = list(ast.iter_child_nodes(node))
    for child in children:
        yield from _chains(child)


def _check(before: Source, after: Source, function: str | None, targets: list[_Target]) -> None:
    """Assert that an edit changed nothing but assignments to its target."""
    definitions = [find_function(one.tree, function, "_config") for one in (before, after)]
    others = [
        [ast.dump(node) for node in one.tree.body if node is not definition and not isinstance(node, ast.ImportFrom)]
        for one, definition in zip((before, after), definitions, strict=True)
    ]
    assert others[0] == others[1]
    old, new = (Counter(_simple_statements(definition)) for definition in definitions)
    touched = {".".join(chain) for target in targets for chain in (target.chain, target.mapping) if chain}
    changed = [statement for statement in (old - new) + (new - old) if statement[0] not in touched]
    assert not changed, f"the edit would change {changed}"


def _simple_statements(definition: Function) -> Iterator[tuple[str, str]]:
    """Give what each statement assigns to, as a dotted path, and the statement."""
    for node in own_nodes(definition):
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            yield ".".join(_assigned(node)[0] or ()), ast.dump(node)
