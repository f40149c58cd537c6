"""The JSON Schema takes every recipe and refuses what the sections refuse by themselves."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.write import SCHEMA_URL, YAML_HEADER, recipe_schema, recipe_to_yaml, schema_text
from bridgepack.errors import ConfigError
from tests.support.catalogue import catalogue

PROJECT = Path(__file__).parents[3]
SCHEMA = recipe_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
FULL: dict[str, Any] = {
    "name": "full",
    "data": {
        "train": ["a.jsonl", {"dataset": "org/name", "split": "train_sft"}],
        "validation": {"dataset": "org/name", "name": "default", "revision": "abc"},
        **{"on_bad_row": "error", "role_aliases": {"bard": "assistant"}},
    },
    "tokenizer": {"name_or_path": "tokenizer", "loader": "tokenizer_json"},
    "preprocessing": {
        "kind": "chat",
        "tool_schemas": [{"name": "add"}],
        "assistant_markers": {"assistant_start": "<a>", "assistant_end": "</a>", "other_role_starts": {"user": "<u>"}},
    },
    "packing": {"packed_sequence_size": 4096, "max_sequence_length": 2048, "seed": 7, "pad_cu_seqlens": True},
    "parallelism": {
        **{"context_parallel_size": 4, "num_gpus": 8},
        **{"cp_comm_type": "a2a+p2p", "hierarchical_context_parallel_sizes": [2, 2]},
    },
    "batch": {"micro_batch_size": 1, "global_batch_size": 8},
    "artifact": "packed/full",
    "model": {"name": "Qwen/Qwen3-8B", "recompute": "full"},
    "method": {"kind": "lora", "target_modules": ["linear_qkv"], "dim": 8, "dropout": 0.1},
    "schedule": {"num_epochs": 2, "warmup_fraction": 0.1},
    "optimizer": {"lr": 1e-4},
    "precision": {"recipe": "bf16_with_mxfp8_mixed"},
    "cuda_graphs": {"implementation": "transformer_engine", "modules": ["mlp"]},
    "checkpoint": {"pretrained": "weights", "save_interval": 5},
    "logging": {"wandb_project": "mine"},
    "environment": {"NCCL_DEBUG": "WARN", "RANKS": 8, "SHARE": 0.5, "ON": True},
    "bridge_overrides": {"train": {"train_iters": None}},
    "ignore": {"BP014": "an old run"},
}
WRONG_VALUES: tuple[Any, ...] = (None, True, 7, -1, 0.5, "", "wrong", [], ["wrong"], [1], {}, {"wrong": 1})


def _paths(value: Any, prefix: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*prefix, key)
        yield from _paths(item, (*prefix, key))


PATHS = sorted(_paths(FULL), key=str)
SECTIONS = [path for path in [(), *PATHS] if isinstance(path[-1] if path else "", str)]


def _at(values: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        values = values[key]
    return values


#: What a recipe says of two fields, which no schema can.
OF_TWO_FIELDS = (
    *("only one of them can be set", "modules are for", "to packed_sequence_size", "0 to lr"),
    *("must be a multiple of micro_batch_size", "role_aliases[", "they must differ", "a run takes one of them"),
)


def _complaint(values: Any) -> str:
    """Return what SFTRecipe says about values; nothing where it takes them."""
    try:
        SFTRecipe.from_mapping(values)
    except ConfigError as error:
        return str(error)
    return ""


def test_schema_is_one_and_explains_every_field() -> None:
    Draft202012Validator.check_schema(SCHEMA)

    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert SCHEMA["$id"] == SCHEMA_URL
    assert SCHEMA["required"] == ["name", "data", "tokenizer", "packing"]
    assert json.loads(schema_text()) == SCHEMA
    for definition in [SCHEMA, *SCHEMA["$defs"].values()]:
        assert definition["description"]
        assert definition["additionalProperties"] is False
        for name, field in definition["properties"].items():
            assert field.get("description"), name
            assert "\n" not in field["description"].replace("\n\n", ""), name


def test_full_recipes_and_those_of_the_catalogue_are_taken() -> None:
    files = [path.read_text(encoding="utf-8") for path in (PROJECT / "recipes").glob("*.yaml")]
    texts = [*files, *(recipe_to_yaml(load_recipe(target)) for target in catalogue())]
    for text in texts:
        assert YAML_HEADER in text.splitlines()
        assert list(VALIDATOR.iter_errors(YAML(typ="safe", pure=True).load(text))) == [], text
    assert (_complaint(FULL), list(VALIDATOR.iter_errors(FULL))) == ("", [])

    assert len(texts) > 100


@given(path=st.sampled_from(PATHS), value=st.sampled_from(WRONG_VALUES))
def test_what_the_schema_takes_the_recipe_takes(path: tuple[str | int, ...], value: Any) -> None:
    values = copy.deepcopy(FULL)
    _at(values, path[:-1])[path[-1]] = value

    complaint = _complaint(values) if VALIDATOR.is_valid(values) else ""
    assert not complaint or any(mark in complaint for mark in OF_TWO_FIELDS), f"{path} = {value!r}"


@given(path=st.sampled_from(SECTIONS), name=st.text(st.characters(codec="utf-8"), min_size=1, max_size=8))
def test_unknown_fields_are_refused_wherever_the_recipe_refuses_them(path: tuple[str | int, ...], name: str) -> None:
    values = copy.deepcopy(FULL)
    section = _at(values, path)
    if isinstance(section, dict) and name not in section:
        section[name] = 1
        assert not VALIDATOR.is_valid(values) or not _complaint(values)
