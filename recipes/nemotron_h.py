"""Recipes for Nemotron-3 Nano: full SFT and LoRA in packs of 4096, 8192, 32768 and 131072 tokens.

Mamba, attention and experts in turn; positions reach 262144. LoRA adapts the Mamba projections too.

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


_NEMOTRON_3_NANO = _Model(
    hub_id="nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    full="nemotron_3_nano_sft_8gpu_h100_bf16_config",
    lora="nemotron_3_nano_peft_8gpu_h100_bf16_config",
)
#: Linear layers that get an adapter.
_TARGETS = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2", "in_proj", "out_proj")


def nemotron_3_nano_sft_16gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return full SFT of Nemotron-3 Nano 30B-A3B in packs of 4096 tokens on 16 H100s: DP 16, EP 8.

    Upstream's TP, PP and EP; on its 8 GPUs 77 GiB of state leave too little for activations and logits. Whole
    layers are recomputed. 55 GiB of state per GPU.
    """
    return _recipe(
        "nemotron_3_nano_sft_16gpu_h100_bf16_recipe",
        _NEMOTRON_3_NANO,
        4096,
        recompute="full",
        num_gpus=16,
        expert_model_parallel_size=8,
    )


def nemotron_3_nano_sft_16gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return full SFT of Nemotron-3 Nano 30B-A3B in packs of 8192 tokens on 16 H100s: DP 16, EP 8.

    Upstream's TP, PP and EP; on its 8 GPUs 77 GiB of state leave too little for activations and logits. Whole
    layers are recomputed. 55 GiB of state per GPU.
    """
    return _recipe(
        "nemotron_3_nano_sft_16gpu_h100_bf16_8k_recipe",
        _NEMOTRON_3_NANO,
        8192,
        recompute="full",
        num_gpus=16,
        expert_model_parallel_size=8,
    )


def nemotron_3_nano_sft_16gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return full SFT of Nemotron-3 Nano 30B-A3B in packs of 32768 tokens on 16 H100s: CP 4 x DP 4, EP 8.

    Upstream's TP, PP and EP. CP 4 leaves 8192 tokens to a rank. Whole layers are recomputed. 55 GiB of state per
    GPU.
    """
    return _recipe(
        "nemotron_3_nano_sft_16gpu_h100_bf16_32k_recipe",
        _NEMOTRON_3_NANO,
        32768,
        recompute="full",
        num_gpus=16,
        context_parallel_size=4,
        expert_model_parallel_size=8,
    )


def nemotron_3_nano_sft_32gpu_h100_bf16_128k_recipe() -> SFTRecipe:
    """Return full SFT of Nemotron-3 Nano 30B-A3B in packs of 131072 tokens on 32 H100s: CP 8 x DP 4, EP 8.

    Upstream's TP, PP and EP. CP 8 leaves 16384 tokens to a rank. Whole layers are recomputed. 44 GiB of state per
    GPU.
    """
    return _recipe(
        "nemotron_3_nano_sft_32gpu_h100_bf16_128k_recipe",
        _NEMOTRON_3_NANO,
        131072,
        recompute="full",
        num_gpus=32,
        context_parallel_size=8,
        expert_model_parallel_size=8,
    )


def nemotron_3_nano_peft_8gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return LoRA of Nemotron-3 Nano 30B-A3B in packs of 4096 tokens on 8 H100s: DP 8, EP 8.

    Upstream's topology. 11 GiB of state per GPU.
    """
    return _recipe(
        "nemotron_3_nano_peft_8gpu_h100_bf16_recipe", _NEMOTRON_3_NANO, 4096, num_gpus=8, expert_model_parallel_size=8
    )


def nemotron_3_nano_peft_8gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return LoRA of Nemotron-3 Nano 30B-A3B in packs of 8192 tokens on 8 H100s: DP 8, EP 8.

    Upstream's topology. 11 GiB of state per GPU.
    """
    return _recipe(
        "nemotron_3_nano_peft_8gpu_h100_bf16_8k_recipe",
        _NEMOTRON_3_NANO,
        8192,
        num_gpus=8,
        expert_model_parallel_size=8,
    )


def nemotron_3_nano_peft_8gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return LoRA of Nemotron-3 Nano 30B-A3B in packs of 32768 tokens on 8 H100s: CP 4 x DP 2, EP 8.

    Upstream's TP, PP and EP. CP 4 leaves 8192 tokens to a rank. 11 GiB of state per GPU.
    """
    return _recipe(
        "nemotron_3_nano_peft_8gpu_h100_bf16_32k_recipe",
        _NEMOTRON_3_NANO,
        32768,
        num_gpus=8,
        context_parallel_size=4,
        expert_model_parallel_size=8,
    )


def nemotron_3_nano_peft_8gpu_h100_bf16_128k_recipe() -> SFTRecipe:
    """Return LoRA of Nemotron-3 Nano 30B-A3B in packs of 131072 tokens on 8 H100s: CP 8 x DP 1, EP 8.

    Upstream's TP, PP and EP. CP 8 leaves 16384 tokens to a rank. Whole layers are recomputed. 11 GiB of state per
    GPU.
    """
    return _recipe(
        "nemotron_3_nano_peft_8gpu_h100_bf16_128k_recipe",
        _NEMOTRON_3_NANO,
        131072,
        recompute="full",
        num_gpus=8,
        context_parallel_size=8,
        expert_model_parallel_size=8,
    )


def _recipe(
    name: str,
    model: _Model,
    packed_sequence_size: int,
    *,
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
            "tokenizer": {"name_or_path": model.hub_id},
            "packing": {"packed_sequence_size": packed_sequence_size},
            "parallelism": parallelism,
            "batch": {"tokens_per_step": max(524288, 16 * packed_sequence_size)},
            "model": {"name": model.lora if is_lora else model.full, "recompute": recompute},
            "method": method,
            "checkpoint": {"pretrained": f"checkpoints/{model.hub_id.rpartition('/')[2]}", "folder": f"runs/{name}"},
        }
    )
