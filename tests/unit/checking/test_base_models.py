"""Settings that make another model than the one whose weights are loaded: by its own config, else by the base."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.records import Finding
from tests.support.bridge_recipes import recipe_of
from tests.support.small_builds import with_changes
from tests.unit.rules.run_cases import base_values

LLAMA, MOE = "llama32_1b_sft_1gpu_h100_bf16_config", "qwen3_30b_a3b_sft_8gpu_h100_bf16_config"

#: How a recipe names a setting that it has from its base.
WHERE = "bridge_overrides.model.rotary_base"


def findings(target: Any, **options: Any) -> dict[str, Finding]:
    report = check_target(target, CheckOptions(select=("BP746",), **options))
    return {finding.where: finding for finding in report.findings}


def changed(name: str = LLAMA, weights: Path | str | None = "/weights/of/it", **model: Any) -> SFTRecipe:
    pretrained = {} if weights is None else {"checkpoint__pretrained": str(weights)}
    return with_changes(recipe_of(name), {**pretrained, "bridge_overrides": {"model": model}})


@pytest.mark.parametrize(
    ("base", "name", "value", "of_base", "effect"),
    [
        (LLAMA, "rotary_base", 10000, "500000.0", "computes something else"),
        (LLAMA, "layernorm_epsilon", 0.001, "1e-05", "computes something else"),
        (LLAMA, "rotary_percent", 0.5, "1.0", "computes something else"),
        (LLAMA, "window_size", [128, 0], "null", "computes something else"),
        (LLAMA, "qk_layernorm", True, "false", "do not load"),
        (LLAMA, "share_embeddings_and_output_weights", False, "true", "do not load"),
        (LLAMA, "num_layers", 8, "16", "do not load"),
        (LLAMA, "num_attention_heads", 16, "32", "do not load"),
        (LLAMA, "num_query_groups", 4, "8", "do not load"),
        (LLAMA, "ffn_hidden_size", 4096, "8192", "do not load"),
        (LLAMA, "normalization", "LayerNorm", "RMSNorm", "do not load"),
        (MOE, "moe_router_topk", 2, "8", "computes something else"),
        (MOE, "moe_router_score_function", "sigmoid", "softmax", "computes something else"),
        (MOE, "moe_ffn_hidden_size", 512, "768", "do not load"),
    ],
)
def test_another_function_or_shape_is_named(base: str, name: str, value: Any, of_base: str, effect: str) -> None:
    finding = findings(changed(base, **{name: value}))[f"bridge_overrides.model.{name}"]

    assert finding.severity == "error"
    assert effect in finding.found
    assert finding.allowed.startswith(f"{of_base}, ")
    assert findings(changed(base, weights=None, **{name: value})) == {}


@pytest.mark.parametrize(
    "model",
    [
        {"hidden_dropout": 0.1, "attention_dropout": 0.1},
        {"rope_scaling_factor": 16.0},
        {"moe_aux_loss_coeff": 0.01, "moe_z_loss_coeff": 0.001, "moe_router_load_balancing_type": "aux_loss"},
        {"seq_length": 8192, "recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1},
        {"init_method_std": 0.5, "bias_dropout_fusion": False, "calculate_per_token_loss": False},
        {"rotary_base": 500000, "moe_layer_freq": 1},
    ],
)
def test_what_training_chooses_is_silent(model: dict[str, Any]) -> None:
    for name in (LLAMA, MOE) if "rotary_base" not in model and "rope_scaling_factor" not in model else (LLAMA,):
        assert findings(changed(name, **model)) == {}


def test_a_bias_that_the_model_has_by_another_field_is_silent() -> None:
    base = "gpt_oss_20b_sft_8gpu_h100_bf16_config"

    assert findings(changed(base, add_qkv_bias=True)) == {}
    assert findings(changed(base, add_bias_linear=False)) != {}


def test_longer_positions_by_yarn_are_silent() -> None:
    yarn = {
        **{"position_embedding_type": "yarn", "yarn_rotary_scaling_factor": 4.0, "yarn_mscale": 1.0},
        **{"yarn_original_max_position_embeddings": 40960, "yarn_beta_fast": 32.0, "yarn_beta_slow": 1.0},
    }
    shipped = load_recipe("qwen3_600m_sft_8gpu_h100_bf16_yarn_128k_recipe")

    assert findings(changed("qwen3_8b_sft_4gpu_h100_bf16_config", **yarn)) == {}
    assert findings(with_changes(shipped, {"checkpoint__pretrained": "/weights/of/it"})) == {}


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A checkpoint of Megatron-Bridge of a model with a base of its own."""
    folder = tmp_path / "weights" / "iter_0000000"
    folder.mkdir(parents=True)
    (tmp_path / "weights" / "latest_checkpointed_iteration.txt").write_text("0")
    model = {**base_values()["model"], "rotary_base": 1_000_000}
    (folder / "run_config.yaml").write_text(yaml.safe_dump({"model": json.loads(json.dumps(model, default=str))}))
    return tmp_path / "weights"


def test_the_checkpoint_s_own_config_decides(weights: Path) -> None:
    finding = findings(changed(weights=weights))[WHERE]

    assert finding.allowed == f"1000000, as the checkpoint {weights} has it"
    assert findings(changed(weights=weights, rotary_base=1_000_000)) == {}
    assert set(findings(changed(weights=weights), looks_at_files=False)) == set()


def test_a_model_of_hugging_face_decides_by_the_keys_that_all_families_share(tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "rope_theta": 10000.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").touch()

    assert findings(changed(weights=tmp_path))[WHERE].allowed.startswith("10000.0, ")


SIZES = {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8}
SCALED = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}


@pytest.mark.parametrize("has_weights", [True, False])
@pytest.mark.parametrize(
    ("positions", "longest", "expected"),
    [
        ({"max_position_embeddings": 8192}, 8192, {}),
        ({"max_position_embeddings": 8192}, 16384, {"BP640"}),
        ({"max_position_embeddings": 131072, "rope_scaling": SCALED}, 16384, {}),
        ({"max_position_embeddings": 8192, "rope_parameters": SCALED}, 16384, {}),
        ({}, 16384, {}),
    ],
)
def test_positions_of_a_folder_are_those_of_its_config(
    tmp_path: Path, positions: dict[str, Any], longest: int, expected: Any, has_weights: bool
) -> None:
    report = check_target(_of_folder(tmp_path, {**SIZES, **positions}, longest, has_weights), CheckOptions())
    assert {finding.code for finding in report.findings if finding.code == "BP640"} == set(expected)


def test_the_sizes_of_a_folder_are_judged(tmp_path: Path) -> None:
    recipe = _of_folder(tmp_path, {**SIZES, "max_position_embeddings": 8192}, 4096, has_weights=True)
    report = check_target(with_changes(recipe, {"parallelism__tensor_model_parallel_size": 3}), CheckOptions())
    assert [finding.found for finding in report.findings if finding.code == "BP819"] == ["3 with 32 attention heads"]


def _of_folder(folder: Path, config: dict[str, Any], longest: int, has_weights: bool) -> SFTRecipe:
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(config))
    (model / "model.safetensors").touch()
    pretrained = model if has_weights else folder / "weights"
    packing = {"packing__packed_sequence_size": longest, "packing__max_sequence_length": longest}
    return with_changes(
        recipe_of(LLAMA),
        {"model__name": str(model), "checkpoint__pretrained": str(pretrained), "bridge_overrides": {}, **packing},
    )


def test_saved_configs_are_compared_with_the_model_of_their_id(tmp_path: Path) -> None:
    facts = recipe_of(LLAMA).release.facts
    model = facts.model_by_name("meta-llama/Llama-3.2-1B")
    assert model is not None
    values = {**copy.deepcopy(base_values()), "model": {**base_values()["model"], **model}}
    values["checkpoint"]["pretrained_checkpoint"] = "/weights/of/it"
    changes = {"": {}, "model.rotary_base": {"rotary_base": 10000}, "model.hidden_size": {"hidden_size": 1024}}
    for where, change in changes.items():
        path = tmp_path / "run_config.yaml"
        changed_values = {**values, "model": {**values["model"], **change}}
        path.write_text(yaml.safe_dump(json.loads(json.dumps(changed_values, default=str))))
        assert set(findings(str(path))) == ({where} if where else set())


def test_a_change_that_is_meant_is_ignored_with_a_reason() -> None:
    recipe = with_changes(changed(rotary_base=8_000_000), {"ignore": {"BP746": "the base is raised for longer texts"}})

    assert findings(recipe) == {}
