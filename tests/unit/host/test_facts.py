"""The file of each release says what its recipes, classes and fields are."""

import json
from pathlib import Path
from typing import Any

import pytest

from bridgepack.host import RELEASES, V06, V07, HostRelease, adapter_placements, model_fields
from bridgepack.host.facts import CONTAINER

BUILT = "megatron.bridge.models.gpt.model_config.BridgeGPTModelConfig"


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
def test_every_recipe_is_whole(release: HostRelease) -> None:
    facts = release.facts
    assert set(facts.sections) <= set(facts.types_of(CONTAINER))
    for name in facts.recipes:
        shipped = facts.shipped_recipe(name)
        assert shipped is not None
        kind = shipped["model"]["_target_"]
        assert {"seq_length", "num_layers", "tensor_model_parallel_size"} <= set(facts.types_of(kind)), name
        assert shipped["model"]["seq_length"] > 0, name
    assert len(facts.recipes) > 180


@pytest.mark.parametrize("table", [model_fields.TABLE, adapter_placements.TABLE], ids=lambda table: table.name)
def test_every_release_has_an_entry_in_the_tables_that_running_made(table: Path) -> None:
    assert list(json.loads(table.read_text(encoding="utf-8"))) == [release.name for release in RELEASES]


def test_what_a_caller_changes_stays_with_the_caller() -> None:
    first = V06.facts.shipped_recipe("qwen3_8b_sft_4gpu_h100_bf16_config")
    assert first is not None
    before = json.dumps(first)

    num_emptied = _empty(first)

    assert num_emptied > 20
    assert json.dumps(V06.facts.shipped_recipe("qwen3_8b_sft_4gpu_h100_bf16_config")) == before


def _empty(value: Any) -> int:
    """Empty nested mappings and lists; return how many there were."""
    inner = list(value.values() if isinstance(value, dict) else value)
    num_emptied = 1 + sum(_empty(one) for one in inner if isinstance(one, dict | list))
    value.clear()
    return num_emptied


def test_a_model_that_is_built_from_parts_has_the_fields_of_its_transformer() -> None:
    types = V07.facts.types_of(BUILT)
    llama = V07.facts.shipped_recipe("llama32_1b_sft_1gpu_h100_bf16_config")

    assert types["vocab_size"] == {"one_of": ["int", "null"]}
    assert types["num_layers"] == "int"
    assert "hf_model_id" not in types
    assert llama is not None
    assert (llama["model"]["_target_"], llama["model"]["num_layers"]) == (BUILT, 16)
    assert llama["model"]["hf_model_id"] == "meta-llama/Llama-3.2-1B", "under its canonical name"


def test_releases_are_read_apart() -> None:
    assert set(V06.facts.recipes) < set(V07.facts.recipes)
    assert V06.facts.types_of(BUILT) == {}
