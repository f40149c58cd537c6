"""Whatever a file's layout: after edits it says what it said, with the edits, and other lines are as they were."""

from __future__ import annotations

import copy
import random
import tomllib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from bridgepack.config.editing import REMOVE, Edit, edited_text

Tree = dict[str, Any]

SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(10**9), 10**9),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=12),
    st.sampled_from(
        ["yes", "null", "1e3", "0x1f", "12:30", "2024-01-01", "- a", "a: b", "a #b", "'", '"', "a\nb", "\\"]
    ),
)
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.fixed_dictionaries({"p": SCALARS, "q": SCALARS})
EDITS = st.lists(st.tuples(st.sampled_from(["set", "set", "add", "section", "remove"]), VALUES), min_size=1, max_size=4)
STYLES = st.randoms(use_true_random=False)


def _tree(rng: random.Random, names: Iterator[str], depth: int) -> Tree:
    """Return nested mappings with keys that occur nowhere else; each value's text holds its key."""
    tree: Tree = {}
    for _ in range(rng.randint(1, 4)):
        name = next(names)
        if depth and rng.random() < 0.4:
            tree[name] = _tree(rng, names, depth - 1)
        else:
            tree[name] = rng.choice([f"{name} text", f"{name}'s", [f"{name}-0", f"{name}-1"], f"{name}"])
    return tree


def _names() -> Iterator[str]:
    return (f"key{number:03d}" for number in range(1000))


def _sections(tree: Tree, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _sections(value, (*path, name))


def _at(tree: Tree, path: tuple[str, ...]) -> Any:
    for name in path:
        tree = tree[name]
    return tree


def _edit(rng: random.Random, tree: Tree, action: str, value: Any, number: int) -> tuple[Edit, Tree]:
    """Return an edit that fits the tree, and the tree after it."""
    result = copy.deepcopy(tree)
    section = rng.choice(list(_sections(result)))
    leaves = [name for name, one in _at(result, section).items() if not isinstance(one, dict)]
    if action == "remove" and leaves:
        name = rng.choice(leaves)
        del _at(result, section)[name]
        return Edit(path=".".join((*section, name)), value=REMOVE), result
    names = [f"new{number}", f"below{number}"] if action == "section" else [f"new{number}"]
    if action == "set" and leaves:
        names = [rng.choice(leaves)]
    path = (*section, *names)
    for name in path[len(section) : -1]:
        _at(result, section)[name] = {}
    _at(result, path[:-1])[path[-1]] = value
    return Edit(path=".".join(path), value=value), result


def _edits(rng: random.Random, tree: Tree, wanted: list[tuple[str, Any]]) -> tuple[list[Edit], Tree]:
    edits = []
    for number, (action, value) in enumerate(wanted):
        edit, tree = _edit(rng, tree, action, value, number)
        edits.append(edit)
    return edits, tree


def _assert_other_lines_stay(old: str, new: str, edits: list[Edit]) -> None:
    touched = {name for edit in edits for name in edit.path.split(".")}
    lines = old.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    kept = [line for line in lines if line.strip() and not any(name in line for name in touched)]
    remaining = iter(new.removeprefix("\ufeff").replace("\r\n", "\n").split("\n"))

    assert [line for line in kept if line not in remaining] == []
    assert _comments(new) == _comments(old)
    assert new.startswith("\ufeff") == old.startswith("\ufeff")
    if "\r\n" in old:
        assert new.count("\n") == new.count("\r\n")


def _comments(text: str) -> list[str]:
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    return [line for line in lines if line.lstrip().startswith("#")]


def _noise(rng: random.Random, indent: str) -> Iterator[str]:
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        yield rng.choice([f"{indent}# note {rng.randint(0, 10**6)}: x = [1", ""])


def _tail(rng: random.Random) -> str:
    return rng.choice(["", "", "  # why: because", " "])


def _dressed(rng: random.Random, lines: list[str]) -> str:
    text = "\n".join(lines) + rng.choice(["\n", "\n", "", "\n\n# end\n"])
    return rng.choice(["", "", "\ufeff"]) + (text.replace("\n", "\r\n") if rng.random() < 0.3 else text)


def _yaml_text(rng: random.Random, text: str) -> str:
    return rng.choice([text, '"' + text + '"', "'" + text.replace("'", "''") + "'"])


def _yaml_flow(rng: random.Random, value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml_flow(rng, item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_yaml_flow(rng, item) for item in value) + "]"
    return _yaml_text(rng, value)


def _yaml_lines(rng: random.Random, tree: Tree, indent: str) -> Iterator[str]:
    step = rng.choice(["  ", "    ", " "])
    for name, value in tree.items():
        yield from _noise(rng, indent)
        style = rng.random()
        if isinstance(value, dict) and style < 0.7:
            yield f"{indent}{name}:{_tail(rng)}"
            yield from _yaml_lines(rng, value, indent + step)
        elif isinstance(value, list) and style < 0.5:
            yield f"{indent}{name}:{_tail(rng)}"
            dash = rng.choice([indent, indent + step])
            yield from (f"{dash}- {_yaml_text(rng, item)}" for item in value)
        elif isinstance(value, str) and style < 0.2:
            yield f"{indent}{name}: {rng.choice(['|-', '>-'])}"
            yield f"{indent}{step}{value}"
        else:
            yield f"{indent}{name}: {_yaml_flow(rng, value)}{_tail(rng)}"
    yield from _noise(rng, indent)


def _read_yaml(text: str, version: tuple[int, int]) -> Any:
    yaml = YAML(typ="safe", pure=True)
    yaml.version = version
    return yaml.load(text.removeprefix("\ufeff"))


@settings(max_examples=300, deadline=None)
@given(rng=STYLES, wanted=EDITS)
def test_yaml(rng: random.Random, wanted: list[tuple[str, Any]]) -> None:
    tree = _tree(rng, _names(), 2)
    old = _dressed(rng, list(_yaml_lines(rng, tree, "")))
    assert _read_yaml(old, (1, 2)) == tree
    edits, expected = _edits(rng, tree, wanted)

    new = edited_text(old, ".yaml", edits)

    assert _read_yaml(new, (1, 2)) == expected
    assert _read_yaml(new, (1, 1)) == expected
    _assert_other_lines_stay(old, new, edits)


def _toml_value(rng: random.Random, value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(rng, item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml_value(rng, item)}" for key, item in value.items()) + "}"
    return f"'{value}'" if "'" not in value and rng.random() < 0.5 else f'"{value}"'


def _toml_lines(rng: random.Random, tree: Tree, path: tuple[str, ...]) -> Iterator[str]:
    tables = {name: value for name, value in tree.items() if isinstance(value, dict) and rng.random() < 0.7}
    for name, value in tree.items():
        if name not in tables:
            yield from _noise(rng, "")
            yield f"{name} = {_toml_value(rng, value)}{_tail(rng)}"
    for name, value in tables.items():
        yield from _noise(rng, "")
        yield f"[{'.'.join((*path, name))}]{_tail(rng)}"
        yield from _toml_lines(rng, value, (*path, name))


@settings(max_examples=200, deadline=None)
@given(rng=STYLES, wanted=EDITS)
def test_toml(rng: random.Random, wanted: list[tuple[str, Any]]) -> None:
    tree = _tree(rng, _names(), 2)
    old = _dressed(rng, list(_toml_lines(rng, tree, ())))
    assert tomllib.loads(old.removeprefix("\ufeff")) == tree
    edits, expected = _edits(rng, tree, wanted)

    new = edited_text(old, ".toml", edits)

    assert tomllib.loads(new.removeprefix("\ufeff")) == expected
    _assert_other_lines_stay(old, new, edits)


class SFTRecipe(dict[str, Any]):
    """Stands in for a section with any fields."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(fields)

    def override(self, changes: Tree) -> SFTRecipe:
        result = copy.deepcopy(self)
        for path in sorted(changes, key=lambda path: path.count(".")):
            *sections, leaf = path.split(".")
            node: Any = result
            for name in sections:
                node = node.setdefault(name, {})
            node[leaf] = changes[path]
        return result


def _python_lines(rng: random.Random, tree: Tree, indent: str) -> Iterator[str]:
    """Give the lines of a call or dict, without what opens and closes it."""
    for name, value in tree.items():
        yield from _noise(rng, indent)
        yield from _python_entry(rng, name, value, indent, is_last=name == list(tree)[-1])


def _python_entry(rng: random.Random, name: str, value: Any, indent: str, *, is_last: bool) -> Iterator[str]:
    comma = "" if is_last and rng.random() < 0.5 else ","
    if not isinstance(value, dict) or rng.random() < 0.2:
        shown = rng.choice([repr(value), f"({value!r})", f"computed({value!r})"])
        yield f"{indent}{name}={shown}{comma}{_tail(rng)}"
        return
    yield f"{indent}{name}=Section("
    yield from _python_lines(rng, value, indent + "    ")
    yield f"{indent}){comma}{_tail(rng)}"


def _run(text: str) -> Any:
    names: dict[str, Any] = {"SFTRecipe": SFTRecipe, "Section": SFTRecipe, "computed": lambda value: value}
    exec(text.removeprefix("\ufeff"), names)
    return names["small_recipe"]()


@settings(max_examples=200, deadline=None)
@given(rng=STYLES, wanted=EDITS)
def test_recipe_function(rng: random.Random, wanted: list[tuple[str, Any]]) -> None:
    tree = _tree(rng, _names(), 2)
    lines = ["def small_recipe():", "    return SFTRecipe(", *_python_lines(rng, tree, " " * 8), "    )"]
    old = _dressed(rng, lines)
    assert _run(old) == tree
    wanted = [(action, value) for action, value in wanted if action != "remove"]
    edits, expected = _edits(rng, tree, wanted)

    new = edited_text(old, ".py", edits)

    assert _run(new) == expected
    if "override" not in new:
        _assert_other_lines_stay(old.replace(",", ""), new.replace(",", ""), edits)
    assert _comments(old) == _comments(new)


STATEMENTS = [
    "cfg.a.x = 1",
    "cfg.a.y = 'one'  # why",
    "cfg.a.z = [1, 2]",
    "cfg.a.x = cfg.a.z[0] + 1",
    "if flag:\n        cfg.a.x = 3",
    "change(cfg)",
    "change(cfg.a)",
    "cfg.dataset.dataset_kwargs = {'p': 1}",
    "cfg.dataset.dataset_kwargs['q'] = 2",
    "cfg.dataset.dataset_kwargs = None",
    "cfg.dataset.dataset_kwargs = {**(cfg.dataset.dataset_kwargs or {}), 'r': 3,  # last\n    }",
    "# a comment",
    "alias = cfg.a; alias.y = 'two'",
]
CONTAINER_PATHS = ["a.x", "a.y", "a.z", "dataset.dataset_kwargs.p", "dataset.dataset_kwargs.q", "dataset.seed"]


def _config(text: str) -> Any:
    def start() -> SimpleNamespace:
        return SimpleNamespace(a=SimpleNamespace(x=0, y="", z=[0]), dataset=SimpleNamespace(dataset_kwargs={}, seed=1))

    def change(thing: SimpleNamespace) -> None:
        thing = getattr(thing, "a", thing)
        thing.x, thing.y, thing.z = 7, "seven", [7]

    names: dict[str, Any] = {"start": start, "change": change, "flag": True}
    exec(text, names)
    return names["small_config"]()


@settings(max_examples=300, deadline=None)
@given(
    statements=st.lists(st.sampled_from(STATEMENTS), max_size=6),
    edits=st.lists(st.tuples(st.sampled_from(CONTAINER_PATHS), SCALARS), min_size=1, max_size=4),
)
def test_container_function(statements: list[str], edits: list[tuple[str, Any]]) -> None:
    body = "".join(f"    {line}\n" for line in ["cfg = start()", *statements, "return cfg"])
    old = f"def small_config():\n{body}"
    try:
        expected = _config(old)
    except TypeError:
        return
    for path, value in edits:
        *sections, leaf = path.split(".")
        if sections[-1] == "dataset_kwargs":
            expected.dataset.dataset_kwargs = {**(expected.dataset.dataset_kwargs or {}), leaf: value}
        else:
            setattr(getattr(expected, sections[0]), leaf, value)

    new = edited_text(old, ".py", [Edit(path=path, value=value) for path, value in edits], kind="container")

    assert _config(new) == expected
    assert _comments(new) == _comments(old)


@pytest.mark.parametrize("suffix", [".yaml", ".toml"])
def test_no_edit_changes_nothing(suffix: str) -> None:
    text = "\ufeff# only a comment\r\n\r\n"

    assert edited_text(text, suffix, []) == text
