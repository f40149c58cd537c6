"""Names of the host's own recipes, in the forms in which users write them."""

import json
from pathlib import Path
from typing import Any

import pytest

from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.bridge.shipped import is_shipped_model
from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.config.recipe.training import ModelConfig
from tests.support.bridge_recipes import recipe_of


def test_hub_ids_and_folders_are_no_shipped_recipes(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_model").mkdir()

    names = ("Qwen/Qwen3-8B", "my_model", str(tmp_path / "my_model"))
    assert [name for name in names if is_shipped_model(ModelConfig(name=name))] == []


def test_a_folder_with_the_name_of_an_id_is_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = recipe_of("Qwen/Qwen3-8B")
    assert config_of_recipe(recipe).values["model"]["hidden_size"] == 4096

    folder = tmp_path / "Qwen/Qwen3-8B"
    folder.mkdir(parents=True)
    content = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2}
    (folder / "config.json").write_text(json.dumps(content))
    assert config_of_recipe(recipe).values["model"]["hidden_size"] == 64


def test_an_empty_section_of_overrides_changes_nothing() -> None:
    empty = ({}, {"model": {}}, {"dataset": {}}, {"dataset": {"dataset_kwargs": {}}}, {"train": {}})
    recipes = [recipe_of("qwen3_8b_sft_4gpu_h100_bf16_config", bridge_overrides=value) for value in empty]
    without, *others = [config_of_recipe(recipe).values for recipe in recipes]

    assert others == [without] * 4


@pytest.mark.parametrize(
    ("overrides", "code"),
    [
        ({"dataset": {"offline_packing_specs": None}}, "BP002"),
        ({"model": {"moe_router_load_balancing_type": {"a": 1}, "moe_expert_capacity_factor": 1.0}}, "BP044"),
    ],
)
def test_an_override_of_another_kind_is_a_finding(overrides: dict[str, Any], code: str) -> None:
    recipe = recipe_of("qwen3_30b_a3b_sft_8gpu_h100_bf16_config", bridge_overrides=overrides)

    assert {finding.code for finding in check_target(recipe, CheckOptions(select=(code,))).findings} == {code}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("qwen3_8b_sft_4gpus_h100_bf16", "Did you mean qwen3_8b_sft_4gpu_h100_bf16_config?"),
        ("bridge:zzz", "`bridgepack recipes list` names them."),
        ("mine.recipes.zzz", "`bridgepack recipes list` names them."),
    ],
)
def test_name_that_no_recipe_has_is_an_error(name: str, hint: str) -> None:
    (finding,) = check_target(recipe_of(name), CheckOptions(select=("BP043",))).findings

    assert (finding.where, finding.found) == ("model.name", name)
    assert finding.fix == hint
    for version, is_judged in {"0.7.0": True, "0.9.0": False}.items():  # whose recipes nobody knows yet
        report = check_target(recipe_of(name), CheckOptions(select=("BP043",), bridge_version=version))
        assert [one.code for one in report.findings] == ["BP043"] * is_judged


@pytest.mark.parametrize("name", ["qwen3_8b_sft", "qwen3_next_80b_a3b_peft", "org/name", "bridge:qwen3_8b_sft"])
def test_name_that_may_be_right_is_no_error(name: str) -> None:
    report = check_target(recipe_of(name), CheckOptions(select=("BP043",)))

    assert (report.findings, report.rules_skipped) == ((), ())


def test_texts_of_findings_name_the_fields_of_the_recipe() -> None:
    recipe = recipe_of("qwen3_8b_sft", batch__micro_batch_size=2)
    (finding,) = check_target(recipe, CheckOptions(select=("BP004",))).findings
    assert finding.where == "batch.micro_batch_size"
    assert "Set batch.micro_batch_size to 1. To keep" in finding.fix
