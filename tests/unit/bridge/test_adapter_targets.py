"""Targets of adapters that a recipe does not name: the base's own, or those of the model's layers."""

from typing import Any

import pytest

from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.rules.judging.environment import target_versions
from bridgepack.rules.judging.judge import judge_run
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.registry import RUN_RULES
from tests.unit.rules.run_cases import RECIPE

PLAIN = ["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"]
LATENT = ["linear_q_proj", "linear_kv_down_proj", "linear_kv_up_proj", "linear_proj"]
MIXERS = ["in_proj", "out_proj"]


def recipe_of(model: str, method: dict[str, Any], **sections: Any) -> SFTRecipe:
    parallelism = {"num_gpus": 8, "context_parallel_size": 1}
    values = {**RECIPE, "parallelism": parallelism, "model": {"name": model}, "method": method, **sections}
    return SFTRecipe.from_mapping(values)


@pytest.mark.parametrize(
    ("model", "kind", "targets"),
    [
        ("qwen3_30b_a3b_sft_8gpu_h100_bf16_config", "lora", PLAIN),
        ("qwen3_30b_a3b_sft_8gpu_h100_bf16_config", "dora", PLAIN[:2]),
        ("moonlight_16b_sft_8gpu_h100_bf16_8k_config", "lora", [*LATENT, *PLAIN[2:]]),
        ("moonlight_16b_peft_2gpu_h100_bf16_config", "lora", [*LATENT, *PLAIN[2:]]),
        ("nemotron_3_5_lightning_sft_openmathinstruct2_packed_config", "lora", [*PLAIN, *MIXERS]),
        ("qwen3_next_80b_a3b_sft_16gpu_h100_bf16_config", "lora", [*PLAIN, *MIXERS]),
        ("qwen35_vl_4b_peft_1gpu_h100_bf16_config", "lora", [*PLAIN, *MIXERS]),
        # What the base has chosen stays.
        ("moonlight_16b_peft_4gpu_h100_bf16_config", "lora", LATENT),
        ("nemotron_3_nano_4b_peft_8gpu_h100_bf16_config", "lora", PLAIN[:2]),
        ("qwen3_8b_peft_1gpu_h100_bf16_config", "lora", PLAIN[:2]),
    ],
)
def test_default_targets(model: str, kind: str, targets: list[str]) -> None:
    config = config_of_recipe(recipe_of(model, {"kind": kind}))

    assert config.values["peft"]["target_modules"] == targets


def test_what_the_recipe_names_is_judged_even_if_it_is_the_host_s_default() -> None:
    """Of the adapters' class: nobody has chosen it where nobody has written it."""
    recipe = recipe_of("moonlight_16b_sft_8gpu_h100_bf16_8k_config", {"kind": "lora", "target_modules": PLAIN})

    assert changes_of(recipe)["BP840"] == {"peft.target_modules": [*LATENT[:3], *PLAIN[1:]]}


def test_no_one_turns_the_gradients_on_unseen() -> None:
    """Rules' changes mend a base where the recipe says nothing; this one is for a person."""
    recomputed = {"model": {"recompute_granularity": "selective", "recompute_modules": ["mlp"]}}
    method = {"kind": "lora", "target_modules": PLAIN[2:]}
    recipe = recipe_of("qwen3_8b_peft_1gpu_h100_bf16_config", method, bridge_overrides=recomputed)

    assert changes_of(recipe)["BP842"] == {"model.recompute_method": "uniform"}


def changes_of(recipe: SFTRecipe) -> dict[str, dict[str, Any]]:
    """Return code -> proposed path -> value."""
    rules = [rule for rule in RUN_RULES if rule.code.startswith("BP84")]
    report = judge_run(Run(config=config_of_recipe(recipe), versions=target_versions()), rules)
    return {one.code: {change.path: change.value for change in one.changes} for one in report.findings}


@pytest.mark.parametrize("version", ["0.6", "0.7"])
def test_foreign_names_are_judged_for_every_release(version: str) -> None:
    method = {"kind": "lora", "target_modules": ["q_proj", "linear_proj"]}
    recipe = recipe_of("qwen3_8b_peft_1gpu_h100_bf16_config", method).override({"bridge_version": version})
    rules = [rule for rule in RUN_RULES if rule.code == "BP840"]
    report = judge_run(Run(config=config_of_recipe(recipe), versions=target_versions(version)), rules)

    assert [one.found.partition(",")[0] for one in report.findings] == ["q_proj"]
