"""Recipes survive a trip through YAML and TOML."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.write import SCHEMA_URL, recipe_to_toml, recipe_to_yaml, written_values
from bridgepack.errors import ConfigError
from tests.support.catalogue import SMALL

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | texts
plain_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
sources = texts | st.fixed_dictionaries({"dataset": texts}, optional={"name": texts, "split": texts})
counts = st.integers(1, 64)
fractions = st.floats(0, 0.99)
methods = st.just({"kind": "full"}) | st.fixed_dictionaries(
    {"kind": st.sampled_from(["lora", "dora"])},
    optional={"dim": counts, "alpha": counts, "dropout": fractions, "target_modules": st.lists(texts, min_size=1)},
)
preprocessings = st.fixed_dictionaries(
    {"kind": st.just("chat")},
    optional={
        "tool_schemas": st.lists(st.dictionaries(texts, plain_values, max_size=2), max_size=2) | st.none(),
        "assistant_markers": st.fixed_dictionaries(
            {"assistant_start": texts, "assistant_end": texts},
            optional={"other_role_starts": st.dictionaries(texts, texts, max_size=2)},
        ),
    },
) | st.fixed_dictionaries({"kind": st.just("tokenized")}, optional={"over_long": st.just("truncate")})
recipes = st.fixed_dictionaries(
    {
        "name": st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,9}", fullmatch=True),
        "data": st.fixed_dictionaries({"train": sources | st.lists(sources, min_size=1, max_size=3)}),
        "tokenizer": st.fixed_dictionaries({"name_or_path": texts}, optional={"chat_template": texts | st.none()}),
        "packing": st.fixed_dictionaries(
            {"packed_sequence_size": st.integers(1, 2**31 - 1)},
            optional={"seed": st.integers(0, 2**32 - 1), "max_sequences_per_pack": counts | st.none()},
        ),
    },
    optional={
        "preprocessing": preprocessings,
        "parallelism": st.fixed_dictionaries(
            {}, optional={"hierarchical_context_parallel_sizes": st.lists(counts, min_size=2) | st.none()}
        ),
        "model": st.none() | st.fixed_dictionaries({"name": texts}, optional={"recompute": st.none()}),
        "method": methods,
        "optimizer": st.fixed_dictionaries({}, optional={"lr": st.floats(1e-300, 1e300) | st.none()}),
        "cuda_graphs": st.just({"implementation": "transformer_engine", "modules": ["mlp", "moe"]}) | st.just({}),
        "environment": st.dictionaries(texts, st.booleans() | st.integers() | st.floats(-1e9, 1e9) | texts, max_size=3),
        "bridge_overrides": st.dictionaries(texts, plain_values, max_size=3),
        "ignore": st.dictionaries(texts, texts, max_size=2),
    },
).map(SFTRecipe.from_mapping)


def _has_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_null, value.values()))
    return any(map(_has_null, value)) if isinstance(value, list | tuple) else value is None


def test_files_say_what_was_said_in_the_order_of_fields() -> None:
    said = {"method": {"dim": 8, "kind": "lora"}, "artifact": None, "logging": {}}
    recipe = SFTRecipe.from_mapping({**SMALL, **said, "bridge_overrides": {"checkpoint": {"save": Path("a/b")}}})

    assert recipe_to_yaml(recipe.override({"batch.global_batch_size": 128})) == (
        f"# yaml-language-server: $schema={SCHEMA_URL}\n"
        "name: small\n"
        "data:\n  train: a.jsonl\n"
        "tokenizer:\n  name_or_path: tokenizer\n"
        "packing:\n  packed_sequence_size: 16\n"
        "batch:\n  global_batch_size: 128\nartifact: null\n"
        "method:\n  kind: lora\n  dim: 8\n"
        "bridge_overrides:\n  checkpoint:\n    save: a/b\n"
    )
    assert recipe_to_toml(recipe) == (
        f"#:schema {SCHEMA_URL}\n"
        'name = "small"\n\n'
        '[data]\ntrain = "a.jsonl"\n\n'
        '[tokenizer]\nname_or_path = "tokenizer"\n\n'
        "[packing]\npacked_sequence_size = 16\n\n"
        '[method]\nkind = "lora"\ndim = 8\n\n'
        '[bridge_overrides.checkpoint]\nsave = "a/b"\n'
    )


def test_toml_escapes_what_a_terminal_would_obey() -> None:
    name = "e\x1b[31m\x9b\u202e\U000e0001\u00a0"
    text = recipe_to_toml(SFTRecipe.from_mapping({**SMALL, "checkpoint": {"folder": name}}))
    assert text.replace("\n", "").isprintable()
    assert tomllib.loads(text)["checkpoint"]["folder"] == name


@given(recipes)
def test_yaml_round_trip(recipe: SFTRecipe) -> None:
    again = SFTRecipe.from_mapping(YAML(typ="safe", pure=True).load(recipe_to_yaml(recipe)))

    assert again == recipe
    assert written_values(again) == written_values(recipe)


@given(recipes)
def test_toml_round_trip(recipe: SFTRecipe) -> None:
    if _has_null(recipe.bridge_overrides) or _has_null(getattr(recipe.preprocessing, "tool_schemas", None) or ()):
        with pytest.raises(ConfigError, match="is null; TOML has "):
            recipe_to_toml(recipe)
        return

    again = SFTRecipe.from_mapping(tomllib.loads(recipe_to_toml(recipe)))

    assert again == recipe


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"model": {"x": {1, 2}}}, "bridge_overrides.model.x is {1, 2}; a file holds texts"),
        ({"model": {7: 1}}, "bridge_overrides.model has the key 7"),
    ],
)
def test_what_no_file_holds_is_refused(overrides: dict[str, Any], message: str) -> None:
    recipe = SFTRecipe.from_mapping({**SMALL, "bridge_overrides": overrides})

    for write in (recipe_to_yaml, recipe_to_toml):
        with pytest.raises(ConfigError) as raised:
            write(recipe)
        assert str(raised.value).startswith(message)


def test_long_lists_of_sections_have_a_line_for_each() -> None:
    turns = [
        {"role": "user", "content": ["{instruction}", "Context:\n{context}"]},
        {"role": "assistant", "content": "{output}", "reasoning_content": "{thinking}"},
    ]
    values = {**SMALL, "data": {"train": "a.jsonl", "layout": {"kind": "chat", "messages": turns}}}
    text = recipe_to_yaml(SFTRecipe.from_mapping(values))

    lines = (
        "    messages:\n"
        """      - {role: user, content: ['{instruction}', "Context:\\n{context}"]}\n"""
        "      - {role: assistant, content: '{output}', reasoning_content: '{thinking}'}\n"
    )
    assert lines in text
    assert SFTRecipe.from_mapping(YAML(typ="safe", pure=True).load(text)) == SFTRecipe.from_mapping(values)
