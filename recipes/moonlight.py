"""Recipes for Moonlight 16B-A3B: full SFT and LoRA in packs of 4096 and 8192 tokens, which is its longest.

LoRA adapts the projections of latent attention: there is no linear_qkv. The tokenizer is Python code of its
repository; read it before you build.

State per GPU, as the docstrings name it: parameters / (TP x PP) of 2 + 4 + 12 / (DP x CP) bytes for full SFT (bf16
weights, fp32 gradients, fp32 weights and both moments of Adam, spread over data-parallel ranks), and parameters of
experts / (EP x PP) of 2 + 4 + 12 / (GPUs / EP / PP) bytes; of 2 bytes for LoRA. Activations and logits come on top.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from bridgepack import SFTRecipe


class _Model(NamedTuple):
    """A model on the hub, and the base of full SFT and that of LoRA: recipes that Megatron-Bridge ships."""

    hub_id: str
    full: str
    lora: str


_MOONLIGHT = _Model(
    hub_id="moonshotai/Moonlight-16B-A3B-Instruct",
    full="moonlight_16b_sft_8gpu_h100_bf16_config",
    lora="moonlight_16b_peft_2gpu_h100_bf16_config",
)
#: Linear layers that get an adapter.
_TARGETS = ("linear_q_proj", "linear_kv_down_proj", "linear_kv_up_proj", "linear_proj")


def moonlight_16b_sft_8gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return full SFT of Moonlight 16B-A3B in packs of 4096 tokens on 8 H100s: TP 4 x PP 2 x DP 1, EP 4.

    Upstream's topology. 33 GiB of state per GPU.
    """
    return _recipe(
        "moonlight_16b_sft_8gpu_h100_bf16_recipe",
        _MOONLIGHT,
        4096,
        num_gpus=8,
        tensor_model_parallel_size=4,
        pipeline_model_parallel_size=2,
        expert_model_parallel_size=4,
        expert_tensor_parallel_size=1,
    )


def moonlight_16b_sft_8gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return full SFT of Moonlight 16B-A3B in packs of 8192 tokens on 8 H100s: TP 2 x CP 2 x DP 2, EP 8.

    Upstream's topology. CP 2 leaves 4096 tokens to a rank. 37 GiB of state per GPU.
    """
    return _recipe(
        "moonlight_16b_sft_8gpu_h100_bf16_8k_recipe",
        _MOONLIGHT,
        8192,
        base="moonlight_16b_sft_8gpu_h100_bf16_8k_config",
        num_gpus=8,
        tensor_model_parallel_size=2,
        context_parallel_size=2,
        expert_model_parallel_size=8,
        expert_tensor_parallel_size=1,
    )


def moonlight_16b_peft_2gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return LoRA of Moonlight 16B-A3B in packs of 4096 tokens on 2 H100s: DP 2, EP 2.

    Upstream's topology. 16 GiB of state per GPU.
    """
    return _recipe(
        "moonlight_16b_peft_2gpu_h100_bf16_recipe", _MOONLIGHT, 4096, num_gpus=2, expert_model_parallel_size=2
    )


def moonlight_16b_peft_4gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return LoRA of Moonlight 16B-A3B in packs of 8192 tokens on 4 H100s: DP 4, EP 4.

    Upstream's topology. 10 GiB of state per GPU.
    """
    return _recipe(
        "moonlight_16b_peft_4gpu_h100_bf16_8k_recipe",
        _MOONLIGHT,
        8192,
        base="moonlight_16b_peft_4gpu_h100_bf16_config",
        num_gpus=4,
        expert_model_parallel_size=4,
    )


def _recipe(
    name: str,
    model: _Model,
    packed_sequence_size: int,
    *,
    base: str | None = None,
    recompute: str | None = None,
    **parallelism: int,
) -> SFTRecipe:
    """Return a recipe; its name says whether every weight is trained or adapters."""
    is_lora = "_peft_" in name
    method: dict[str, Any] = {"kind": "lora", "target_modules": _TARGETS} if is_lora else {"kind": "full"}
    return SFTRecipe.from_mapping(
        {
            "name": name,
            "data": {"train": "data/chats.jsonl", "validation_fraction": 0.05},
            "tokenizer": {"name_or_path": model.hub_id, "trust_remote_code": True},
            "packing": {"packed_sequence_size": packed_sequence_size},
            "parallelism": {"sequence_parallel": parallelism.get("tensor_model_parallel_size", 1) > 1, **parallelism},
            "batch": {"tokens_per_step": max(524288, 16 * packed_sequence_size)},
            "model": {"name": base or (model.lora if is_lora else model.full), "recompute": recompute},
            "method": method,
            "checkpoint": {"pretrained": f"checkpoints/{model.hub_id.rpartition('/')[2]}", "folder": f"runs/{name}"},
        }
    )
