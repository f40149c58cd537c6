"""Shapes of models from their names and config.json, and what their sequences cost."""

import json
from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.planning.estimate import cost_of
from bridgepack.planning.shape import model_shape
from tests.support.catalogue import SMALL
from tests.support.hub_configs import model_configs


def _recipe(model: str | None, **overrides: Any) -> SFTRecipe:
    own = {"model": {"name": model}} if model else {}
    return SFTRecipe.from_mapping({**SMALL, **own, "bridge_overrides": {"model": overrides} if overrides else {}})


@pytest.mark.parametrize(
    ("model", "billions"),
    [
        ("meta-llama/Meta-Llama-3.1-8B", 8.03),
        ("Qwen/Qwen3-30B-A3B", 30.5),
        ("deepseek-ai/DeepSeek-V3", 671),
        ("qwen3_8b_sft_4gpu_h100_bf16_config", 8.19),
        ("nemotron_3_nano_sft_8gpu_h100_bf16_config", 31.6),
    ],
)
def test_weights_are_as_many_as_published(model: str, billions: float) -> None:
    assert model_shape(_recipe(model)).num_weights / 1e9 == pytest.approx(billions, rel=0.005)


def test_a_config_of_the_hub_says_the_same_as_the_host(tmp_path: Path) -> None:
    num_checked = 0
    for name in ("Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-20b"):
        (tmp_path / "config.json").write_text(json.dumps(model_configs()[name]))
        assert cost_of(model_shape(_recipe(str(tmp_path)))) == cost_of(model_shape(_recipe(name)))
        num_checked += 1
    assert num_checked == 4


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (None, "model.name is not set; allowed: a recipe"),
        ("org/unheard-of-8b", "model.name is 'org/unheard-of-8b', whose sizes are not known; allowed: .* config.json"),
        ("deepseek-ai/DeepSeek-V4-Flash", "dsv4_hybrid, has no formula"),
        ("nemotronh_8b_sft_2gpu_h100_bf16_config", "vocab_size'. Allowed: .* Set what is missing in bridge_overrides"),
    ],
)
def test_an_unknown_model_is_refused_with_what_to_name(model: str | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        cost_of(model_shape(_recipe(model)))


def test_an_override_states_what_is_missing() -> None:
    recipe = _recipe("nemotronh_8b_sft_2gpu_h100_bf16_config", vocab_size=131072)

    assert model_shape(recipe).num_weights / 1e9 == pytest.approx(8.1, rel=0.01)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "cannot be read as a model's config.json: JSONDecodeError"),
        ("[1]", "cannot be read as a model's config.json"),
        ('{"hidden_size": 8}', "KeyError: 'num_hidden_layers'"),
        ('{"mamba_d_state": 16}', "has mamba_d_state; allowed"),
        ('{"layer_types": ["linear_attention"]}', "has linear_attention; allowed"),
    ],
)
def test_a_config_that_does_not_tell_is_refused(tmp_path: Path, config: str, message: str) -> None:
    (tmp_path / "config.json").write_text(config)

    with pytest.raises(ConfigError, match=message):
        cost_of(model_shape(_recipe(str(tmp_path))))


@pytest.mark.parametrize(
    "overrides",
    [
        {"num_layers": 0},
        {"hidden_size": "wide"},
        {"hidden_size": -1},
        {"moe_layer_freq": [1]},
        {"window_size": 8, "window_attn_skip_freq": [1]},
    ],
)
def test_sizes_that_no_model_has_are_refused(overrides: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"its sizes are not known: .*Set what is missing in bridge_overrides.model"):
        cost_of(model_shape(_recipe("Qwen/Qwen3-8B", **overrides)))
