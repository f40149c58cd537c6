"""Edits of Python functions that return an `SFTRecipe`: each form by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.editing import REMOVE, CannotEditError, Edit, edited_text

TEXT = '''\
from bridgepack import SFTRecipe


def small_recipe():
    """é: width counts in bytes."""
    return SFTRecipe(
        name="small",  # é name
        data={"train": 'a.jsonl'},
        tokenizer=TokenizerConfig(name_or_path=TOKENIZER),
        packing=PackingConfig(
            packed_sequence_size=4096,  # tokens
        ),
        batch=BatchConfig(micro_batch_size=(1), global_batch_size=8)
    )
'''


def _edited(text: str, *edits: tuple[str, Any], function: str | None = None) -> str:
    return edited_text(text, ".py", [Edit(path=path, value=value) for path, value in edits], function=function)


def _returned(expression: str) -> str:
    return f"def small_recipe():\n    return {expression}\n"


@pytest.mark.parametrize(
    ("path", "value", "old", "new"),
    [
        ("packing.packed_sequence_size", 8192, "4096,  # tokens", "8192,  # tokens"),
        ("packing.seed", 3, "4096,  # tokens\n", "4096,  # tokens\n            seed=3,\n"),
        ("packing.packed_sequence_size", REMOVE, "            packed_sequence_size=4096,  # tokens\n", ""),
        ("name", "new", '"small",  # é name', '"new",  # é name'),
        ("data.train", "b", "'a.jsonl'", "'b'"),
        ("data.validation", Path("v.jsonl"), "'a.jsonl'}", '\'a.jsonl\', "validation": "v.jsonl"}'),
        ("data.train", REMOVE, "{\"train\": 'a.jsonl'}", "{}"),
        ("tokenizer.revision", "main", "=TOKENIZER)", '=TOKENIZER, revision="main")'),
        ("tokenizer.name_or_path", "x", "8)\n    )\n", '8)\n    ).override({"tokenizer.name_or_path": "x"})\n'),
        ("batch.micro_batch_size", 2, "(1)", "(2)"),
        ("batch.global_batch_size", REMOVE, ", global_batch_size=8", ""),
        ("batch.micro_batch_size", REMOVE, "micro_batch_size=(1), ", ""),
        (
            "parallelism.context_parallel_size",
            2,
            "8)\n    )\n",
            '8)\n    ).override({"parallelism.context_parallel_size": 2})\n',
        ),
        ("packing", {"seed": 1}, "8)\n    )\n", '8)\n    ).override({"packing": {"seed": 1}})\n'),
        ("name", "small", "", ""),
        ("packing.seed", REMOVE, "", ""),
    ],
)
def test_only_what_is_edited_changes(path: str, value: Any, old: str, new: str) -> None:
    assert old in TEXT

    assert _edited(TEXT, (path, value)) == TEXT.replace(old, new, 1)


def test_line_without_comma_gets_one() -> None:
    assert _edited(TEXT, ("description", "d")) == TEXT.replace("=8)\n", '=8),\n        description="d"\n')


@pytest.mark.parametrize(
    ("expression", "edits", "expected"),
    [
        ("base()", [("a.b", 1), ("a.c", None)], 'base().override({"a.b": 1, "a.c": None})'),
        ("x if y else z", [("a.b", 1)], '(x if y else z).override({"a.b": 1})'),
        ("base().override(changes)", [("a.b", 1)], 'base().override(changes).override({"a.b": 1})'),
        ("base().override({'a.b': 1})", [("a.b", 2)], "base().override({'a.b': 2})"),
        ("base().override({'a.b': n})", [("a.b", 2)], "base().override({'a.b': n}).override({\"a.b\": 2})"),
        ("base().override({'a': {'b': 1}})", [("a.b", 2)], "base().override({'a': {'b': 1}, \"a.b\": 2})"),
        ("base().override({'a.b': 1})", [("a", {"b": 2})], 'base().override({\'a.b\': 1}).override({"a": {"b": 2}})'),
        ("SFTRecipe(name='x').override({'a.b': 1})", [("name", "y")], "SFTRecipe(name='y').override({'a.b': 1})"),
        ("SFTRecipe(name='x', **more)", [("a", 1)], "SFTRecipe(name='x', **more).override({\"a\": 1})"),
        ("SFTRecipe.from_mapping({'a': {'b': 1}})", [("a.b", [2])], "SFTRecipe.from_mapping({'a': {'b': [2]}})"),
        ("SFTRecipe.from_mapping({'a': {}})", [("a.b", -1.5)], "SFTRecipe.from_mapping({'a': {\"b\": -1.5}})"),
        ("SFTRecipe.from_mapping(values)", [("a", 1)], 'SFTRecipe.from_mapping(values).override({"a": 1})'),
        ("load_recipe('a.yaml')", [("a", "'")], 'load_recipe(\'a.yaml\').override({"a": "\'"})'),
        ("SFTRecipe(a=dict(b=1))", [("a.b", 2), ("a.c", "\n")], 'SFTRecipe(a=dict(b=2, c="\\n"))'),
        ("SFTRecipe(a=make(b=1))", [("a.b", 2)], 'SFTRecipe(a=make(b=1)).override({"a.b": 2})'),
        ("SFTRecipe()", [("name", "x")], 'SFTRecipe(name="x")'),
    ],
)
def test_expressions(expression: str, edits: list[tuple[str, Any]], expected: str) -> None:
    assert _edited(_returned(expression), *edits) == _returned(expected)


def test_local_names_bound_once_are_followed() -> None:
    text = (
        "def small_recipe():\n    packing = PackingConfig(size=1)  # p\n"
        "    recipe: SFTRecipe = SFTRecipe(packing=packing)\n    return recipe\n"
    )

    assert _edited(text, ("packing.size", 2)) == text.replace("size=1", "size=2")
    assert _edited(text, ("batch.x", 2)).endswith('return recipe.override({"batch.x": 2})\n')
    rebound = text.replace("    return", "    recipe = change(recipe)\n    return")
    assert _edited(rebound, ("packing.size", 2)).endswith('return recipe.override({"packing.size": 2})\n')


def test_module_level_recipe_and_choice_of_function() -> None:
    text = "small = SFTRecipe(a=1)\n\ndef other():\n    return 1\n\ndef a_recipe():\n    return SFTRecipe(a=1)\n"

    assert _edited(text, ("a", 2), function="small") == text.replace("a=1", "a=2", 1)
    assert _edited(text, ("a", 2)) == text[:-4] + "=2)\n"
    assert _edited("\ufeff" + text, ("a", 2)) == "\ufeff" + text[:-4] + "=2)\n"


def test_windows_line_endings_stay() -> None:
    text = TEXT.replace("\n", "\r\n")

    assert _edited(text, ("packing.seed", 3)) == text.replace("# tokens\r\n", "# tokens\r\n            seed=3,\r\n")


@pytest.mark.parametrize(
    ("text", "edit", "reason"),
    [
        ("def a_recipe():\n    if x:\n        return 1\n    return 2\n", ("a", 1), "has 2 return statements"),
        ("def a_recipe():\n    pass\n", ("a", 1), "has 0 return statements"),
        (_returned("base()"), ("a.b", REMOVE), "a.b cannot be removed: the function does not spell it out"),
        (_returned("base().override({'a': 1})"), ("a", REMOVE), "does not spell it out"),
        (_returned("SFTRecipe(a=1)"), ("a", float("inf")), "Python has no literal for it"),
        (_returned("SFTRecipe(a=[1, # c\n 2])"), ("a", 1), "comments stand inside its old value"),
        ("def b():\n    return 1\ndef c():\n    return 1\n", ("a", 1), "defines b, c; say which one to edit"),
    ],
)
def test_refused(text: str, edit: tuple[str, Any], reason: str) -> None:
    with pytest.raises(CannotEditError, match=reason):
        _edited(text, edit)


@pytest.mark.parametrize("name", ["missing", "partial"])
def test_refused_names(name: str) -> None:
    with pytest.raises(CannotEditError, match=r"does not define the function missing|is assigned something else"):
        _edited("partial = functools.partial(f)\n" + _returned("SFTRecipe()"), ("a", 1), function=name)
