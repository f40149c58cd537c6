"""Every SFT and PEFT recipe of megatron-bridge 0.6.2 loads here, is validated by the host, and is what our tables say.

`BRIDGEPACK_REGENERATE=1 pytest tests/contract/test_upstream_recipes.py` writes `bridge/bases.json` and the golden file
of what `check` says of every recipe anew; the latter is reviewed by hand.
"""

import importlib.util
import json
import os
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from bridgepack.bridge.container import config_of_container
from bridgepack.rules.engine.environment import target_versions
from bridgepack.rules.engine.families import ARCHITECTURES, family_of
from bridgepack.rules.engine.rule import Severity
from bridgepack.rules.engine.subject import Run
from tests.support import upstream_recipes as upstream
from tests.support.format_cases import compact
from tests.support.gpu_host import GPUS, TRANSFORMER_ENGINE_VERSION, pretend_gpu_host
from tests.support.host_bases import FILE, host_bases, text_of
from tests.support.hub_configs import model_configs

pytestmark = pytest.mark.bridge
GOLDEN = Path(__file__).parents[1] / "golden" / "recipe_findings.json"
#: Recipes choose the exchange; only the families that need another one than the default have it from the checkpoint.
CHOSEN_BY_RECIPES = {"cp_comm_type"}
#: Families of the table that no recipe of 0.6.2 is made for.
WITHOUT_RECIPE = {"deepseek_v2", "deepseek_v3"}

#: What the host's own validation says against recipes as they are shipped, on the number of GPUs they are named after.
NOT_VALID = {
    # `recompute_modules` has "mhc", which megatron-core 0.19.2 does not know.
    "Invalid choices for recompute_modules": [
        "deepseek_v4_flash_sft_openmath_thinking_packed_config",
        "deepseek_v4_flash_no_mtp_sft_32gpu_h100_bf16_config",
        "deepseek_v4_flash_sft_32gpu_h100_bf16_config",
    ],
    # In-batch packing with a micro batch of one.
    "micro_batch_size should be greater than 1 when using enable_in_batch_packing=True": [
        *("ministral3_14b_peft_2gpu_h100_bf16_config", "ministral3_14b_sft_4gpu_h100_bf16_config"),
        *("ministral3_3b_peft_1gpu_h100_bf16_config", "ministral3_3b_sft_1gpu_h100_bf16_config"),
        *("ministral3_8b_peft_1gpu_h100_bf16_config", "ministral3_8b_sft_2gpu_h100_bf16_config"),
    ],
    # The batch size does not fit the number of GPUs in the recipe's name.
    "must be divisible by eval_micro_batch_size * eval_data_parallel_size": [
        *("qwen35_vl_122b_a10b_peft_8gpu_h100_bf16_config", "qwen35_vl_122b_a10b_sft_48gpu_h100_bf16_config"),
        *("qwen35_vl_397b_a17b_peft_32gpu_h100_bf16_config", "qwen35_vl_397b_a17b_sft_128gpu_h100_bf16_config"),
    ],
    # Megatron-FSDP with the checkpoint format "torch_dist".
    "Megatron-FSDP requires the fsdp_dtensor": ["qwen35_vl_35b_a3b_sft_2gpu_h100_bf16_fsdp_config"],
    # Left for the user to fill in: the path of the data.
    "EnergonDatasetConfig.path must be set to a non-empty dataset path": [
        "nemotron_omni_valor32k_peft_4gpu_h100_bf16_config",
        "nemotron_omni_valor32k_sft_4gpu_h100_bf16_config",
        "qwen3_vl_8b_peft_1gpu_h100_bf16_energon_config",
    ],
    "load_kwargs.data_files must contain non-empty paths": ["qwen3_omni_30b_a3b_sft_8gpu_h100_bf16_hf_json_config"],
}


def test_every_recipe_loads_but_those_that_refuse(
    upstream_recipes: dict[str, upstream.RecipeFunction], upstream_configs: dict[str, Any]
) -> None:
    for name, reason in upstream.NOT_LOADED.items():
        with pytest.raises(NotImplementedError, match=reason):
            upstream.load_recipe_config(upstream_recipes[name])

    assert len(upstream_recipes) == len({name.rpartition(".")[2] for name in upstream_recipes}) == 191
    assert len(upstream_configs) == 190
    assert {type(config).__name__ for config in upstream_configs.values()} == {"ConfigContainer"}


def test_every_model_config_is_asked_for(upstream_configs: dict[str, Any]) -> None:
    asked = {getattr(config.model, "hf_model_id", None) for config in upstream_configs.values()}

    unasked = {"black-forest-labs/FLUX.1-dev", "deepseek-ai/DeepSeek-V3"}  # the latter by recipes/deepseek_v3.py alone
    assert set(model_configs()) - asked == unasked


def test_recipes_validate_on_a_gpu_host_but_those_listed(upstream_configs: dict[str, Any]) -> None:
    messages = {}
    for name, config in upstream_configs.items():
        with pretend_gpu_host(upstream.gpu_of(name)):
            message = upstream.validate(config, upstream.world_size_of(name, config))
        if message is not None:
            messages[name.rpartition(".")[2]] = message

    expected = {name: reason for reason, names in NOT_VALID.items() for name in names}
    assert set(messages) == set(expected)
    assert {name for name, reason in expected.items() if reason not in messages[name]} == set()


def test_the_pretence_ends(bridge: ModuleType) -> None:
    from megatron.core.utils import get_te_version

    real = torch.cuda.get_device_properties
    with pretend_gpu_host("gb200"):
        assert str(get_te_version()) == TRANSFORMER_ENGINE_VERSION
        assert torch.cuda.get_device_properties(0).name == GPUS["gb200"][0]

    assert str(get_te_version()) == "0.0.0"
    assert torch.cuda.get_device_properties is real
    assert importlib.util.find_spec("transformer_engine") is None
    assert "transformer_engine" not in sys.modules


def _comparable(name: str, value: Any) -> Any:
    """Return a value as far as rules look at it: of a pattern of layers, whether it has Mamba layers."""
    return "M" in str(value or "") if name == "hybrid_layer_pattern" else value or None


def test_families_have_what_the_host_gives_them(upstream_configs: dict[str, Any]) -> None:
    num_checked: Counter[str] = Counter()
    for place, container in upstream_configs.items():
        config = config_of_container(container, place=place)
        family = family_of(config)
        if family is None or family.name not in ARCHITECTURES:
            continue
        subject = Run(config=config, versions=target_versions())
        for name, known in ARCHITECTURES[family.name].items():
            if name not in CHOSEN_BY_RECIPES or known is not None:
                assert _comparable(name, subject.of_model(name)) == _comparable(name, known), (place, name)
                num_checked[family.name] += 1
    assert set(num_checked) == set(ARCHITECTURES) - WITHOUT_RECIPE


def codes_of(configs: dict[str, Any]) -> dict[str, dict[str, list[str]]]:
    """Return module and name of a recipe -> severity -> codes, for those with findings that are no advice."""
    found: dict[str, dict[str, list[str]]] = {}
    for name, config in configs.items():
        findings = upstream.findings_of(config, name, upstream.world_size_of(name, config))
        for severity in (Severity.ERROR, Severity.WARNING):
            codes = sorted({finding.code for finding in findings if finding.severity == severity})
            if codes:
                found.setdefault(name, {})[str(severity)] = codes
    return found


def test_findings_are_the_golden_ones(upstream_configs: dict[str, Any]) -> None:
    found = codes_of(upstream_configs)
    if os.environ.get("BRIDGEPACK_REGENERATE"):
        GOLDEN.write_text(compact(dict(sorted(found.items()))) + "\n", encoding="utf-8")
    assert found == json.loads(GOLDEN.read_text(encoding="utf-8"))


def test_bases_on_file_are_current(h100_host: None, upstream_configs: dict[str, Any]) -> None:
    file, bases = json.loads(FILE.read_text(encoding="utf-8")), host_bases(upstream_configs)
    if os.environ.get("BRIDGEPACK_REGENERATE"):
        FILE.write_text(text_of({**file, **bases}), encoding="utf-8")
    found = json.loads(FILE.read_text(encoding="utf-8"))
    assert found == {**found, **bases}
    assert len(found["recipes"]) == len(upstream_configs)
