"""What the table of `host/vision_language.py` says is what the host's own forward steps, models and loss do."""

import json
import pkgutil
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType

import pytest

from bridgepack.bridge.forward_steps import forward_step_for
from bridgepack.bridge.imports import import_by_name, import_host
from bridgepack.bridge.writing.write import to_bridge
from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions
from bridgepack.host import V06
from bridgepack.host.vision_language import TextPacks, text_packs_by_id, text_packs_in, text_packs_of
from tests.support.bridge_recipes import recipe_of
from tests.support.hub_configs import model_configs
from tests.support.installed_host import host_release
from tests.support.text_packs import Case, outcome

pytestmark = [pytest.mark.bridge, pytest.mark.usefixtures("bridge")]
#: Not a module of torch that can be made without its parts; its signature is read.
WHOLE = "MegatronMIMOProvider"
#: Classes that 0.6 does not have.
SINCE_07 = ("NemotronOmniLlavaModel",) if host_release() is V06 else ()
CLASSES = [facts for facts in text_packs_in(host_release()) if not facts.model.endswith((WHOLE, *SINCE_07))]
#: The wrapper hands packs on, and no kernel takes what it adds to them: read in TransformerEngine.
REFUSED_BY_KERNELS = {"Gemma3VLModel"}
#: Parts of the names of providers of models with vision or sound.
MARKS = ("VL", "Omni", "Audio", "ASR", "45V", "MIMO", "Ministral3", "Step37", "Exaone45")
EVERY_CLASS = pytest.mark.parametrize("facts", CLASSES, ids=lambda facts: facts.providers[0])

FULL, RAGGED = Case(), Case(rows=((12, 20), (8, 8, 16)))
TAIL = Case(rows=((10, 7),), multiple=4)
TWO_RANKS = [Case(rows=((10, 18),), multiple=4, context=2, context_rank=rank) for rank in (0, 1)]
SPLIT_ROWS, LAST_STAGE = Case(tensor=2), Case(stages=2, stage=1)


def _begins(text: str) -> str:
    """Return the part of a table's text that an error's text begins with, or has after its type."""
    return text.partition(", ")[0].partition("; ")[0].partition(", or ")[0].removeprefix("with gpt_step ")


@EVERY_CLASS
def test_packs_on_one_rank_and_on_the_last_stage(facts: TextPacks) -> None:
    for case in (FULL, LAST_STAGE):
        found = outcome(facts.model, facts.step, case)
        if facts.refused and facts.model.rpartition(".")[2] not in REFUSED_BY_KERNELS:
            assert found
            assert case is LAST_STAGE or _begins(facts.refused) in found
        else:
            assert not found


@EVERY_CLASS
def test_sequences_without_tokens(facts: TextPacks) -> None:
    for case in (RAGGED, TAIL):
        found = outcome(facts.model, facts.step, case)
        assert bool(found) == bool(facts.empty or (facts.refused and "Gemma3" not in facts.model))
        if facts.empty:
            assert any(text.partition(": ")[2] in found for text in facts.empty.split(", or "))


@EVERY_CLASS
def test_rows_that_gpt_step_cut_for_context_ranks(facts: TextPacks) -> None:
    wrong = [found for case in TWO_RANKS if (found := outcome(facts.model, "gpt_step", case))]
    assert len(wrong) == (2 if facts.context or facts.refused or facts.step == "vlm_step" else 0)
    if facts.step == "vlm_step" and not facts.context and not facts.refused:
        assert [outcome(facts.model, "vlm_step", case) for case in TWO_RANKS] == ["", ""]
    if "Error: " in _begins(facts.context):
        assert all(_begins(facts.context) in found for found in wrong)


@EVERY_CLASS
def test_rows_that_are_split_over_tensor_ranks(facts: TextPacks) -> None:
    if not facts.refused:
        assert outcome(facts.model, facts.step, SPLIT_ROWS) == ("tokens differ" if facts.tensor else "")


@EVERY_CLASS
def test_step_is_the_one_that_works(facts: TextPacks) -> None:
    wrong = {
        step: {case for case in (FULL, LAST_STAGE, SPLIT_ROWS) if outcome(facts.model, step, case)}
        for step in ("gpt_step", "vlm_step")
    }
    assert facts.step == ("vlm_step" if wrong["vlm_step"] < wrong["gpt_step"] else "gpt_step")


def test_wrapper_of_parts_takes_no_boundaries() -> None:
    base = import_by_name("megatron.core.models.mimo.model.base")
    assert "packed_seq_params" not in signature(base.MimoModel.forward).parameters


def test_every_provider_with_vision_or_sound_is_in_the_table() -> None:
    models, num_found = import_host("models"), 0
    for info in pkgutil.walk_packages(models.__path__, "megatron.bridge.models."):
        if "provider" not in info.name and "minimax_m3_bridge" not in info.name:
            continue
        for name, value in vars(import_module(info.name)).items():
            if not isinstance(value, type) or value.__module__ != info.name or not name.endswith("Provider"):
                continue
            if any(mark in name for mark in MARKS) and "Data" not in name:
                assert text_packs_of(name, host_release()) is not None, name
                num_found += 1
    assert num_found > len(CLASSES)


@pytest.mark.parametrize("context", [1, 2])
def test_container_of_a_shipped_recipe_is_judged_by_its_class(host: None, context: int) -> None:
    recipe = recipe_of("qwen3_vl_8b_sft_2gpu_h100_bf16_config", parallelism__context_parallel_size=context)
    config = to_bridge(recipe)
    found = {finding.code for finding in check_target(config, CheckOptions(world_size=8)).findings}

    assert forward_step_for(config).__module__ == "megatron.bridge.training.vlm_step"
    assert {"BP944", "BP945"} & found == ({"BP944", "BP945"} if context > 1 else set())
    assert "BP948" in found
    assert "BP948" not in {finding.code for finding in check_target(recipe, CheckOptions()).findings}


@pytest.mark.parametrize(
    ("model", "architecture"),
    [
        ("Qwen/Qwen3.5-27B", "Qwen3_5ForCausalLM"),
        ("Qwen/Qwen3.5-35B-A3B", "Qwen3_5MoeForCausalLM"),
        ("google/gemma-3-4b-it", "Gemma3ForCausalLM"),
        ("google/gemma-4-26B-A4B-it", "Gemma4ForCausalLM"),
        ("zai-org/GLM-4.5V", "Glm4MoeForCausalLM"),
        ("LGAI-EXAONE/EXAONE-4.5-33B", "Exaone4ForCausalLM"),
        ("stepfun-ai/Step-3.7-Flash", "Step3p5ForCausalLM"),
        ("Qwen/Qwen3-VL-8B-Instruct", "Qwen3ForCausalLM"),
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", "Qwen3MoeForCausalLM"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "Qwen2ForCausalLM"),
        ("Qwen/Qwen3-Omni-30B-A3B-Instruct", "Qwen3MoeForCausalLM"),
    ],
)
def test_language_part_is_a_text_model_of_the_host(
    bridge: ModuleType, tmp_path: Path, model: str, architecture: str
) -> None:
    config = model_configs()[model]
    inner = config.get("thinker_config", config)
    types = {"Qwen3": "qwen3", "Qwen3Moe": "qwen3_moe", "Qwen2": "qwen2", "Glm4Moe": "glm4_moe", "Exaone4": "exaone4"}
    text = {**inner.get("text_config", inner), "architectures": [architecture]}
    text["model_type"] = types.get(architecture.removesuffix("ForCausalLM"), text.get("model_type"))
    (tmp_path / "config.json").write_text(json.dumps(text))

    provider = bridge.AutoBridge.from_hf_pretrained(str(tmp_path)).to_megatron_provider(load_weights=False)

    facts = text_packs_by_id(model, host_release())
    assert facts is not None
    assert architecture in facts.language_part
    assert text_packs_of(type(provider).__name__, host_release()) is None
    assert provider.position_embedding_type == "rope"
