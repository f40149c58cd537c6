"""Families of models: by class, model id, tokenizer and name of a recipe."""

import re
from typing import Any

import pytest

from bridgepack.records import RunConfig
from bridgepack.rules.judging.families import family_named, family_of

#: Family: names that tell it | family: names ...; `-` is none. Of a path the last part counts most.
NAMES = """
llama: meta-llama/Llama-3.2-1B meta-llama/Meta-Llama-3.1-405B deepseek-ai/DeepSeek-R1-Distill-Llama-8B
qwen2: Qwen/Qwen2-0.5B Qwen/Qwen2.5-72B deepseek-ai/DeepSeek-R1-Distill-Qwen-32B
qwen2_5_vl: Qwen/Qwen2.5-VL-7B-Instruct | qwen_audio: Qwen/Qwen2-Audio-7B-Instruct | qwen3: Qwen/Qwen3-0.6B
qwen3_moe: Qwen/Qwen3-30B-A3B Qwen/Qwen3-235B-A22B | qwen3_vl: Qwen/Qwen3-VL-30B-A3B-Instruct
qwen3_omni: Qwen/Qwen3-Omni-30B-A3B-Instruct | qwen3_next: Qwen/Qwen3-Next-80B-A3B-Instruct
qwen3_5: Qwen/Qwen3.5-27B | qwen3_5_vl: qwen35_vl_35b_a3b_sft_16gpu_h100_bf16_config | gemma: google/gemma-2b
gemma2: google/gemma-2-2b google/gemma-2-27b | llama4: meta-llama/Llama-4-Scout-17B-16E | gemma3: google/gemma-3-1b-pt
gemma3_vl: google/gemma-3-12b-it | gemma4_vl: gemma4_vl_26b_sft_8gpu_h100_bf16_config
glm_4_5: zai-org/GLM-4.5 zai-org/GLM-4.5-Air | glm_4_5_vl: zai-org/GLM-4.5V
glm_5: zai-org/GLM-5.2 glm52_sft_416gpu_h100_bf16_config | deepseek_v3: deepseek-ai/DeepSeek-V3
deepseek_v3_2: deepseek-ai/DeepSeek-V3.2-Exp | deepseek_v4: deepseek-ai/DeepSeek-V4-Flash
moonlight: moonshotai/Moonlight-16B-A3B | kimi_vl: moonshotai/Kimi-K2.5
nemotron_h: nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16 nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16
nemotron_h: nvidia/Nemotron-H-8B-Base-8K nemotron_nano_9b_v2_sft_2gpu_h100_bf16_config
nemotron_vl: nvidia/NVIDIA-Nemotron-Nano-12B-v2-VL-BF16
nemotron_omni: nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning-BF16 | nemotron: nvidia/nemotron-3-8b-base-4k
llama_nemotron: nvidia/Llama-3_3-Nemotron-Super-49B-v1 | falcon_h1: tiiuae/Falcon-H1-7B-Base
exaone: LGAI-EXAONE/EXAONE-4.0-1.2B | exaone_4_5: LGAI-EXAONE/EXAONE-4.5-33B
exaone_moe: LGAI-EXAONE/K-EXAONE-236B-A23B | gpt_oss: openai/gpt-oss-20b | minimax: MiniMaxAI/MiniMax-M3
ministral3: mistralai/Ministral-3-8B-Instruct-2512 | mistral: mistralai/Mixtral-8x7B-v0.1
olmoe: allenai/OLMoE-1B-7B-0924 | step: stepfun-ai/Step-3.7-Flash | wan: Wan-AI/Wan2.1-T2V-14B
-: my_run.yaml GPTModelProvider MLAModelProvider HybridModelProvider
gemma2: /models/qwen/gemma-2-2b | llama: /models/llama-3.2-1b/hf
"""
TOLD = [
    (name, None if family == "-" else family)
    for family, _, names in (entry.strip().partition(": ") for entry in re.split(r"[|\n]", NAMES.strip()))
    for name in names.split()
]


@pytest.mark.parametrize(("text", "family"), [("", None), *TOLD])
def test_names_tell_families(text: str, family: str | None) -> None:
    assert family_named(text) == family


CLASSES = "megatron.bridge.models.mamba.mamba_provider"
GEMMA, NEMOTRON = "google/gemma-3-27b-it", "nvidia/Nemotron-H-8B-Base-8K"
GENERAL = {"_target_": "megatron.bridge.models.gpt_provider.GPTModelProvider", "hf_model_id": None}


@pytest.mark.parametrize(
    ("model", "place", "expected"),
    [
        # The class counts before the model id, and one of several families after it.
        ({"_target_": f"{CLASSES}.Gemma3VLModelProvider", "hf_model_id": GEMMA}, "", "gemma3_vl Gemma3VLModelProvider"),
        ({"_target_": f"{CLASSES}.Gemma3ModelProvider", "hf_model_id": GEMMA}, "", "gemma3 Gemma3ModelProvider"),
        ({"_target_": f"{CLASSES}.MambaModelProvider", "hf_model_id": NEMOTRON}, "", f"nemotron_h {NEMOTRON}"),
        ({"_target_": f"{CLASSES}.MambaModelProvider"}, "", "mamba MambaModelProvider"),
        # The recipe tells where the model does not; the tokenizer and the folders of a user's file never do.
        (GENERAL, "my_run.yaml", None),
        (GENERAL, "megatron.bridge.recipes:gpt_oss_20b_sft_config", "gpt_oss gpt_oss_20b_sft_config"),
        (None, "my_run.yaml", None),
        ({}, "/data/gemma-2/run.yaml", None),
        ({}, "llama3/recipes/mine.py:recipe", None),
        ({}, "/data/gemma-2/llama3_8b_sft.yaml", "llama llama3_8b_sft.yaml"),
    ],
)
def test_families_of_runs(model: dict[str, Any] | None, place: str, expected: str | None) -> None:
    values = {"model": model, "tokenizer": {"tokenizer_model": "allenai/OLMoE-1B-7B-0924"}}
    family = family_of(RunConfig(values=values, is_complete=False, place=place))
    assert (family and f"{family.name} {family.evidence}") == expected
