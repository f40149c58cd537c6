"""Recipes for DeepSeek-V3: full SFT and LoRA in packs of 4096, 8192, 32768 and 131072 tokens.

Upstream has recipes for pretraining only, so the base is its common one around the model from the hub. The layers that
predict further tokens are left out: they ignore loss masks and boundaries of packs. Positions reach 163840. TP, PP and
EP of full SFT are those of upstream's pretraining on 256 GPUs; its steps are long enough to fill 8 pipeline stages.

State per GPU, as the docstrings name it: parameters / (TP x PP) of 2 + 4 + 12 / (DP x CP) bytes for full SFT (bf16
weights, fp32 gradients, fp32 weights and both moments of Adam, spread over data-parallel ranks), and parameters of
experts / (EP x PP) of 2 + 4 + 12 / (GPUs / EP / PP) bytes; of 2 bytes for LoRA. Activations and logits come on top.
"""

from __future__ import annotations

from typing import Any

from bridgepack import SFTRecipe

_HUB_ID = "deepseek-ai/DeepSeek-V3"
#: The host knows no boundaries of turns in this chat template.
_MARKERS = {
    "assistant_start": "<｜Assistant｜>",
    "assistant_end": "<｜end▁of▁sentence｜>",
    "other_role_starts": {"user": "<｜User｜>"},
}
#: Linear layers that get an adapter.
_TARGETS = ("linear_q_down_proj", "linear_q_up_proj", "linear_kv_down_proj", "linear_kv_up_proj", "linear_proj")


def deepseek_v3_sft_256gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return full SFT of DeepSeek-V3 in packs of 4096 tokens on 256 H100s: TP 2 x PP 8 x DP 16, EP 32.

    Whole layers are recomputed. 50 GiB of state per GPU.
    """
    return _recipe(
        "deepseek_v3_sft_256gpu_h100_bf16_recipe",
        4096,
        num_gpus=256,
        tensor_model_parallel_size=2,
        pipeline_model_parallel_size=8,
        last_stage=5,
        expert_model_parallel_size=32,
        expert_tensor_parallel_size=1,
    )


def deepseek_v3_sft_256gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return full SFT of DeepSeek-V3 in packs of 8192 tokens on 256 H100s: TP 2 x PP 8 x DP 16, EP 32.

    Whole layers are recomputed. 50 GiB of state per GPU.
    """
    return _recipe(
        "deepseek_v3_sft_256gpu_h100_bf16_8k_recipe",
        8192,
        num_gpus=256,
        tensor_model_parallel_size=2,
        pipeline_model_parallel_size=8,
        last_stage=5,
        expert_model_parallel_size=32,
        expert_tensor_parallel_size=1,
    )


def deepseek_v3_sft_256gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return full SFT of DeepSeek-V3 in packs of 32768 tokens on 256 H100s: TP 2 x PP 8 x CP 4 x DP 4, EP 32.

    CP 4 leaves 8192 tokens to a rank. Whole layers are recomputed. 50 GiB of state per GPU.
    """
    return _recipe(
        "deepseek_v3_sft_256gpu_h100_bf16_32k_recipe",
        32768,
        num_gpus=256,
        tensor_model_parallel_size=2,
        pipeline_model_parallel_size=8,
        last_stage=5,
        context_parallel_size=4,
        expert_model_parallel_size=32,
        expert_tensor_parallel_size=1,
    )


def deepseek_v3_sft_256gpu_h100_bf16_128k_recipe() -> SFTRecipe:
    """Return full SFT of DeepSeek-V3 in packs of 131072 tokens on 256 H100s: TP 2 x PP 8 x CP 16 x DP 1, EP 32.

    CP 16 leaves 8192 tokens to a rank. Whole layers are recomputed. 50 GiB of state per GPU.
    """
    return _recipe(
        "deepseek_v3_sft_256gpu_h100_bf16_128k_recipe",
        131072,
        num_gpus=256,
        tensor_model_parallel_size=2,
        pipeline_model_parallel_size=8,
        last_stage=5,
        context_parallel_size=16,
        expert_model_parallel_size=32,
        expert_tensor_parallel_size=1,
    )


def deepseek_v3_peft_32gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return LoRA of DeepSeek-V3 in packs of 4096 tokens on 32 H100s: PP 4 x DP 8, EP 8.

    Whole layers are recomputed. 46 GiB of state per GPU.
    """
    return _recipe(
        "deepseek_v3_peft_32gpu_h100_bf16_recipe",
        4096,
        num_gpus=32,
        pipeline_model_parallel_size=4,
        last_stage=13,
        expert_model_parallel_size=8,
    )


def deepseek_v3_peft_32gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return LoRA of DeepSeek-V3 in packs of 8192 tokens on 32 H100s: PP 4 x DP 8, EP 8.

    Whole layers are recomputed. 46 GiB of state per GPU.
    """
    return _recipe(
        "deepseek_v3_peft_32gpu_h100_bf16_8k_recipe",
        8192,
        num_gpus=32,
        pipeline_model_parallel_size=4,
        last_stage=13,
        expert_model_parallel_size=8,
    )


def deepseek_v3_peft_64gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return LoRA of DeepSeek-V3 in packs of 32768 tokens on 64 H100s: PP 8 x CP 4 x DP 2, EP 8.

    CP 4 leaves 8192 tokens to a rank. Whole layers are recomputed. 23 GiB of state per GPU.
    """
    return _recipe(
        "deepseek_v3_peft_64gpu_h100_bf16_32k_recipe",
        32768,
        num_gpus=64,
        pipeline_model_parallel_size=8,
        last_stage=5,
        context_parallel_size=4,
        expert_model_parallel_size=8,
    )


def deepseek_v3_peft_128gpu_h100_bf16_128k_recipe() -> SFTRecipe:
    """Return LoRA of DeepSeek-V3 in packs of 131072 tokens on 128 H100s: PP 8 x CP 16 x DP 1, EP 16.

    CP 16 leaves 8192 tokens to a rank. Whole layers are recomputed. 14 GiB of state per GPU.
    """
    return _recipe(
        "deepseek_v3_peft_128gpu_h100_bf16_128k_recipe",
        131072,
        num_gpus=128,
        pipeline_model_parallel_size=8,
        last_stage=5,
        context_parallel_size=16,
        expert_model_parallel_size=16,
    )


def _recipe(name: str, packed_sequence_size: int, *, last_stage: int, **parallelism: int) -> SFTRecipe:
    """Return a recipe; its name says whether every weight is trained or adapters.

    Args:
        name: of the recipe.
        packed_sequence_size: runtime tokens of a pack.
        last_stage: layers on the last pipeline stage, the only one with fewer than the others.
        parallelism: fields of the section.
    """
    is_lora = "_peft_" in name
    method: dict[str, Any] = {"kind": "lora", "target_modules": _TARGETS} if is_lora else {"kind": "full"}
    return SFTRecipe.from_mapping(
        {
            "name": name,
            "data": {"train": "data/chats.jsonl", "validation_fraction": 0.05},
            "tokenizer": {"name_or_path": _HUB_ID, "loader": "tokenizer_json"},
            "preprocessing": {"kind": "chat", "assistant_markers": _MARKERS},
            "packing": {"packed_sequence_size": packed_sequence_size},
            "parallelism": {"sequence_parallel": parallelism.get("tensor_model_parallel_size", 1) > 1, **parallelism},
            "batch": {"tokens_per_step": max(1048576, 32 * packed_sequence_size)},
            "model": {"name": _HUB_ID, "recompute": "full"},
            "method": method,
            "checkpoint": {"pretrained": "checkpoints/DeepSeek-V3", "folder": f"runs/{name}"},
            "bridge_overrides": {"model": {"num_layers_in_last_pipeline_stage": last_stage}},
        }
    )
