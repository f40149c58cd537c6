"""Every SFT and PEFT recipe of the installed host loads here, is validated by it, and is what our tables say.

`scripts/host_facts src/bridgepack/host/bases_v06.json` writes the file of a release anew, and
`BRIDGEPACK_REGENERATE=1 pytest tests/contract/test_upstream_recipes.py` the golden file of what `check` says of every
recipe of it, which is reviewed by hand.
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
from scripts.facts.bases import host_bases

from bridgepack.bridge.container import config_of_container
from bridgepack.bridge.live import copy_of, value_in
from bridgepack.bridge.plain import plain_values
from bridgepack.bridge.shipped import installed_release
from bridgepack.bridge.writing.write import model_of_hub
from bridgepack.canaries.tiny_model import cut_down, require_covered
from bridgepack.config.recipe.training import ModelConfig
from bridgepack.host import HostRelease
from bridgepack.rules.judging.environment import target_versions
from bridgepack.rules.judging.families import ARCHITECTURES, family_of
from bridgepack.rules.judging.rule import Severity
from bridgepack.rules.judging.subject import Run
from tests.support import upstream_recipes as upstream
from tests.support.format_cases import compact
from tests.support.golden import renewed_by
from tests.support.gpu_host import GPUS, TRANSFORMER_ENGINE_VERSION, pretend_gpu_host
from tests.support.hub_configs import model_configs

pytestmark = pytest.mark.bridge
GOLDEN = Path(__file__).parents[1] / "golden"
#: Recipes choose the exchange; only the families that need another one than the default have it from the checkpoint.
CHOSEN_BY_RECIPES = {"cp_comm_type"}
#: Families of the table that no recipe is made for.
WITHOUT_RECIPE = {"deepseek_v2", "deepseek_v3"}

_NO_PATH = "EnergonDatasetConfig.path must be set to a non-empty dataset path"
#: What the validation of every release says against recipes as they are shipped, on the GPUs they are named after.
NOT_VALID = {
    # `recompute_modules` has "mhc", which megatron-core does not know.
    "Invalid choices for recompute_modules": [
        "deepseek_v4_flash_sft_openmath_thinking_packed_config",
        "deepseek_v4_flash_no_mtp_sft_32gpu_h100_bf16_config",
        "deepseek_v4_flash_sft_32gpu_h100_bf16_config",
    ],
    # The batch size does not fit the number of GPUs in the recipe's name.
    "must be divisible by eval_micro_batch_size * eval_data_parallel_size": [
        *("qwen35_vl_122b_a10b_peft_8gpu_h100_bf16_config", "qwen35_vl_122b_a10b_sft_48gpu_h100_bf16_config"),
        *("qwen35_vl_397b_a17b_peft_32gpu_h100_bf16_config", "qwen35_vl_397b_a17b_sft_128gpu_h100_bf16_config"),
    ],
    # Megatron-FSDP with the checkpoint format "torch_dist".
    "Megatron-FSDP requires the fsdp_dtensor": ["qwen35_vl_35b_a3b_sft_2gpu_h100_bf16_fsdp_config"],
    # Left for the user to fill in: the path of the data.
    _NO_PATH: [
        "nemotron_omni_valor32k_peft_4gpu_h100_bf16_config",
        "nemotron_omni_valor32k_sft_4gpu_h100_bf16_config",
        "qwen3_vl_8b_peft_1gpu_h100_bf16_energon_config",
    ],
    "load_kwargs.data_files must contain non-empty paths": ["qwen3_omni_30b_a3b_sft_8gpu_h100_bf16_hf_json_config"],
}
#: The same for one release alone.
NOT_VALID_IN = {
    "0.6": {
        # In-batch packing with a micro batch of one.
        "micro_batch_size should be greater than 1 when using enable_in_batch_packing=True": [
            *("ministral3_14b_peft_2gpu_h100_bf16_config", "ministral3_14b_sft_4gpu_h100_bf16_config"),
            *("ministral3_3b_peft_1gpu_h100_bf16_config", "ministral3_3b_sft_1gpu_h100_bf16_config"),
            *("ministral3_8b_peft_1gpu_h100_bf16_config", "ministral3_8b_sft_2gpu_h100_bf16_config"),
        ]
    },
    # Fewer layers than the stages that the recipe lays out.
    "0.7": {
        "0 middle layers remaining but -1 middle PP stages": ["qwen35_vl_35b_a3b_sft_8gpu_gb200_bf16_functional_config"]
    },
}
#: Release -> its SFT and PEFT recipes; all but those of `NOT_LOADED` can be made.
NUM_RECIPES = {"0.6": 191, "0.7": 200}
#: Models that no recipe of the release makes.
UNASKED = {
    # DeepSeek-V3 by recipes/deepseek_v3.py of this project alone.
    "0.6": {"black-forest-labs/FLUX.1-dev", "deepseek-ai/DeepSeek-V3", "LGAI-EXAONE/K-EXAONE-2.0-750B-A37B"},
    "0.7": {"black-forest-labs/FLUX.1-dev", "deepseek-ai/DeepSeek-V3"},
}


@pytest.fixture(scope="module")
def release(bridge: ModuleType) -> HostRelease:
    """Return the release of the installed host."""
    return installed_release()


def test_every_recipe_loads_but_those_that_refuse(
    upstream_recipes: dict[str, upstream.RecipeFunction], upstream_configs: dict[str, Any], release: HostRelease
) -> None:
    for name, reason in upstream.NOT_LOADED.items():
        with pytest.raises(NotImplementedError, match=reason):
            upstream.load_recipe_config(upstream_recipes[name])

    num_recipes = len({name.rpartition(".")[2] for name in upstream_recipes})
    assert len(upstream_recipes) == num_recipes == NUM_RECIPES[release.name]
    assert len(upstream_configs) == num_recipes - len(upstream.NOT_LOADED)
    assert {type(config).__name__ for config in upstream_configs.values()} == {"ConfigContainer"}


def test_every_model_config_is_asked_for(upstream_configs: dict[str, Any], release: HostRelease) -> None:
    asked = {value_in(config, "model.hf_model_id") for config in upstream_configs.values()}

    assert set(model_configs()) - asked == UNASKED[release.name]


def test_models_of_the_hub_are_made_as_recipes_make_them(
    host: None, upstream_configs: dict[str, Any], release: HostRelease
) -> None:
    """A class of its own, such as a language model without its vision, is a recipe's choice."""
    compared: dict[tuple[str, str], str] = {}
    for config in upstream_configs.values():
        hub_id, kind = value_in(config, "model.hf_model_id"), type(config.model).__name__
        if hub_id in model_configs() and (kind, hub_id) not in compared:
            made = model_of_hub(ModelConfig(name=hub_id, trust_remote_code=True), release)
            compared[kind, hub_id] = type(made).__name__
    own = {hub_id for (kind, hub_id), made in compared.items() if made != kind}

    assert len(compared) > 50
    assert len(own) <= len(compared) // 5, own
    for (kind, hub_id), made in compared.items():  # from parts, or by a provider
        assert made.endswith("ModelConfig") == kind.endswith("ModelConfig"), hub_id


def test_copies_are_of_the_same_classes(upstream_configs: dict[str, Any]) -> None:
    for name, config in upstream_configs.items():
        copied = copy_of(config)
        assert copied is not config
        assert type(copied.model) is type(config.model), name
        assert plain_values(copied) == plain_values(config), name
        copied.model.seq_length = config.model.seq_length + 1
        assert copied.model.seq_length != config.model.seq_length, name
    assert upstream_configs


def test_the_canary_takes_llama_from_a_provider_and_from_parts(
    upstream_configs: dict[str, Any], release: HostRelease
) -> None:
    kinds: Counter[str] = Counter()
    for name, config in upstream_configs.items():
        if ".llama" in name.rpartition(".")[0]:
            model = copy_of(config).model
            require_covered(model)
            sizes = cut_down(model)
            assert {path: value_in(model, path) for path in sizes} == sizes, name
            assert (value_in(model, "num_layers"), value_in(model, "cuda_graph_impl")) == (6, "none"), name
            kinds[type(model).__name__] += 1

    from_parts = {"BridgeGPTModelConfig": 14} if release.built_from_parts else {}
    assert {kind: num for kind, num in kinds.items() if kind.endswith("Config")} == from_parts
    assert kinds.total() >= 14


def test_recipes_validate_on_a_gpu_host_but_those_listed(
    upstream_configs: dict[str, Any], release: HostRelease
) -> None:
    messages = {}
    for name, config in upstream_configs.items():
        with pretend_gpu_host(upstream.gpu_of(name)):
            message = upstream.validate(config, upstream.world_size_of(name, config))
        if message is not None:
            messages[name.rpartition(".")[2]] = message

    reasons = NOT_VALID | NOT_VALID_IN[release.name]
    expected = {name: reason for reason, names in reasons.items() for name in names}
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


def test_families_have_what_the_host_gives_them(upstream_configs: dict[str, Any], release: HostRelease) -> None:
    num_checked: Counter[str] = Counter()
    for place, container in upstream_configs.items():
        config = config_of_container(container, place=place)
        family = family_of(config)
        if family is None or family.name not in ARCHITECTURES:
            continue
        subject = Run(config=config, versions=target_versions(release.bridge))
        for name, known in ARCHITECTURES[family.name].items():
            if name not in CHOSEN_BY_RECIPES or known is not None:
                assert _comparable(name, subject.model_setting(name)) == _comparable(name, known), (place, name)
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


def test_findings_are_the_golden_ones(upstream_configs: dict[str, Any], release: HostRelease) -> None:
    found, golden = codes_of(upstream_configs), GOLDEN / f"recipe_findings_{release.name}.json"
    if os.environ.get("BRIDGEPACK_REGENERATE"):
        golden.write_text(compact(dict(sorted(found.items()))) + "\n", encoding="utf-8")
    assert found == json.loads(golden.read_text(encoding="utf-8")), renewed_by(__file__)


def test_bases_on_file_are_current(h100_host: None, upstream_configs: dict[str, Any], release: HostRelease) -> None:
    found, bases = json.loads(release.bases.read_text(encoding="utf-8")), host_bases(upstream_configs)
    assert found == {**found, **bases}
    assert len(found["recipes"]) == len(upstream_configs)
