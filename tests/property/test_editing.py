"""Whatever a file's layout: after edits it says what it said, with the edits, and other lines are as they were."""

import copy
import random
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from bridgepack.config.editing import edited_text
from bridgepack.records import Change
from tests.support.examples import examples

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
EDITS = st.lists(st.tuples(st.sampled_from(["set", "set", "add", "section"]), VALUES), min_size=1, max_size=4)
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


def _edit(rng: random.Random, tree: Tree, action: str, value: Any, number: int) -> tuple[Change, Tree]:
    """Return an edit that fits the tree, and the tree after it."""
    result = copy.deepcopy(tree)
    section = rng.choice(list(_sections(result)))
    leaves = [name for name, one in _at(result, section).items() if not isinstance(one, dict)]
    names = [f"new{number}", f"below{number}"] if action == "section" else [f"new{number}"]
    if action == "set" and leaves:
        names = [rng.choice(leaves)]
    path = (*section, *names)
    for name in path[len(section) : -1]:
        _at(result, section)[name] = {}
    _at(result, path[:-1])[path[-1]] = value
    return Change(why="", path=".".join(path), value=value), result


def _edits(rng: random.Random, tree: Tree, wanted: list[tuple[str, Any]]) -> tuple[list[Change], Tree]:
    edits = []
    for number, (action, value) in enumerate(wanted):
        edit, tree = _edit(rng, tree, action, value, number)
        edits.append(edit)
    return edits, tree


def _assert_other_lines_stay(old: str, new: str, edits: list[Change]) -> None:
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


@examples(3)
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
