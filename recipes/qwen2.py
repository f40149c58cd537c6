"""Recipes for Qwen2.5: full SFT and LoRA in packs of 4096, 8192, 32768 and 131072 tokens.

Positions of the base models reach 131072; those of the Instruct models 32768, and further with YaRN only.

State per GPU, as the docstrings name it: parameters / (TP x PP) of 2 + 4 + 12 / (DP x CP) bytes for full SFT (bf16
weights, fp32 gradients, fp32 weights and both moments of Adam, spread over data-parallel ranks); of 2 bytes for LoRA.
Activations and logits come on top.
"""

from __future__ import annotations

from typing import NamedTuple

from bridgepack import SFTRecipe


class _Model(NamedTuple):
    """A model on the hub, and the base of full SFT and that of LoRA: recipes that Megatron-Bridge ships."""

    hub_id: str
    full: str
    lora: str


_QWEN25_7B = _Model(
    hub_id="Qwen/Qwen2.5-7B", full="qwen25_7b_sft_2gpu_h100_bf16_config", lora="qwen25_7b_peft_1gpu_h100_bf16_config"
)
_QWEN25_72B = _Model(
    hub_id="Qwen/Qwen2.5-72B",
    full="qwen25_72b_sft_32gpu_h100_bf16_config",
    lora="qwen25_72b_peft_8gpu_h100_bf16_config",
)


def qwen25_7b_sft_4gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return full SFT of Qwen2.5-7B in packs of 4096 tokens on 4 H100s: TP 2 x DP 2.

    Upstream's TP and PP; on its 2 GPUs 64 GiB of state leave too little for activations and logits. 43 GiB of state
    per GPU.
    """
    return _recipe("qwen25_7b_sft_4gpu_h100_bf16_recipe", _QWEN25_7B, 4096, num_gpus=4, tensor_model_parallel_size=2)


def qwen25_7b_sft_8gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return full SFT of Qwen2.5-7B in packs of 8192 tokens on 8 H100s: TP 2 x DP 4.

    Upstream's TP and PP; on its 2 GPUs 64 GiB of state leave too little for activations and logits. 32 GiB of state
    per GPU.
    """
    return _recipe("qwen25_7b_sft_8gpu_h100_bf16_8k_recipe", _QWEN25_7B, 8192, num_gpus=8, tensor_model_parallel_size=2)


def qwen25_7b_sft_8gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return full SFT of Qwen2.5-7B in packs of 32768 tokens on 8 H100s: TP 4 x CP 2 x DP 1.

    TP 4 instead of upstream's 2 splits activations and logits. CP 2 leaves 16384 tokens to a rank. 21 GiB of state
    per GPU.
    """
    return _recipe(
        "qwen25_7b_sft_8gpu_h100_bf16_32k_recipe",
        _QWEN25_7B,
        32768,
        num_gpus=8,
        tensor_model_parallel_size=4,
        context_parallel_size=2,
    )


def qwen25_7b_sft_16gpu_h100_bf16_128k_recipe() -> SFTRecipe:
    """Return full SFT of Qwen2.5-7B in packs of 131072 tokens on 16 H100s: TP 4 x CP 4 x DP 1.

    TP 4 instead of upstream's 2 splits activations and logits. CP 4 leaves 32768 tokens to a rank. Whole layers are
    recomputed. 16 GiB of state per GPU.
    """
    return _recipe(
        "qwen25_7b_sft_16gpu_h100_bf16_128k_recipe",
        _QWEN25_7B,
        131072,
        recompute="full",
        num_gpus=16,
        tensor_model_parallel_size=4,
        context_parallel_size=4,
    )


def qwen25_7b_peft_1gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return LoRA of Qwen2.5-7B in packs of 4096 tokens on 1 H100: DP 1.

    Upstream's topology. 14 GiB of state per GPU.
    """
    return _recipe("qwen25_7b_peft_1gpu_h100_bf16_recipe", _QWEN25_7B, 4096, num_gpus=1)


def qwen25_7b_peft_2gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return LoRA of Qwen2.5-7B in packs of 8192 tokens on 2 H100s: TP 2 x DP 1.

    TP 2 instead of upstream's 1 splits activations and logits. 7 GiB of state per GPU.
    """
    return _recipe(
        "qwen25_7b_peft_2gpu_h100_bf16_8k_recipe", _QWEN25_7B, 8192, num_gpus=2, tensor_model_parallel_size=2
    )


def qwen25_7b_peft_8gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return LoRA of Qwen2.5-7B in packs of 32768 tokens on 8 H100s: TP 2 x CP 4 x DP 1.

    TP 2 instead of upstream's 1 splits activations and logits. CP 4 leaves 8192 tokens to a rank. 7 GiB of state
    per GPU.
    """
    return _recipe(
        "qwen25_7b_peft_8gpu_h100_bf16_32k_recipe",
        _QWEN25_7B,
        32768,
        num_gpus=8,
        tensor_model_parallel_size=2,
        context_parallel_size=4,
    )


def qwen25_7b_peft_8gpu_h100_bf16_128k_recipe() -> SFTRecipe:
    """Return LoRA of Qwen2.5-7B in packs of 131072 tokens on 8 H100s: TP 2 x CP 4 x DP 1.

    TP 2 instead of upstream's 1 splits activations and logits. CP 4 leaves 32768 tokens to a rank. Whole layers are
    recomputed. 7 GiB of state per GPU.
    """
    return _recipe(
        "qwen25_7b_peft_8gpu_h100_bf16_128k_recipe",
        _QWEN25_7B,
        131072,
        recompute="full",
        num_gpus=8,
        tensor_model_parallel_size=2,
        context_parallel_size=4,
    )


def qwen25_72b_sft_32gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return full SFT of Qwen2.5-72B in packs of 4096 tokens on 32 H100s: TP 8 x PP 4 x DP 1.

    Upstream's topology. 38 GiB of state per GPU.
    """
    return _recipe(
        "qwen25_72b_sft_32gpu_h100_bf16_recipe",
        _QWEN25_72B,
        4096,
        num_gpus=32,
        tensor_model_parallel_size=8,
        pipeline_model_parallel_size=4,
    )


def qwen25_72b_sft_32gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return full SFT of Qwen2.5-72B in packs of 8192 tokens on 32 H100s: TP 8 x PP 4 x DP 1.

    Upstream's topology. 38 GiB of state per GPU.
    """
    return _recipe(
        "qwen25_72b_sft_32gpu_h100_bf16_8k_recipe",
        _QWEN25_72B,
        8192,
        num_gpus=32,
        tensor_model_parallel_size=8,
        pipeline_model_parallel_size=4,
    )


def qwen25_72b_sft_64gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return full SFT of Qwen2.5-72B in packs of 32768 tokens on 64 H100s: TP 8 x PP 4 x CP 2 x DP 1.

    Upstream's TP and PP. CP 2 leaves 16384 tokens to a rank. Whole layers are recomputed. 25 GiB of state per GPU.
    """
    return _recipe(
        "qwen25_72b_sft_64gpu_h100_bf16_32k_recipe",
        _QWEN25_72B,
        32768,
        recompute="full",
        num_gpus=64,
        tensor_model_parallel_size=8,
        pipeline_model_parallel_size=4,
        context_parallel_size=2,
    )


def qwen25_72b_sft_128gpu_h100_bf16_128k_recipe() -> SFTRecipe:
    """Return full SFT of Qwen2.5-72B in packs of 131072 tokens on 128 H100s: TP 8 x PP 4 x CP 4 x DP 1.

    Upstream's TP and PP. CP 4 leaves 32768 tokens to a rank. Whole layers are recomputed. 19 GiB of state per GPU.
    """
    return _recipe(
        "qwen25_72b_sft_128gpu_h100_bf16_128k_recipe",
        _QWEN25_72B,
        131072,
        recompute="full",
        num_gpus=128,
        tensor_model_parallel_size=8,
        pipeline_model_parallel_size=4,
        context_parallel_size=4,
    )


def qwen25_72b_peft_8gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return LoRA of Qwen2.5-72B in packs of 4096 tokens on 8 H100s: TP 8 x DP 1.

    Upstream's topology. 17 GiB of state per GPU.
    """
    return _recipe("qwen25_72b_peft_8gpu_h100_bf16_recipe", _QWEN25_72B, 4096, num_gpus=8, tensor_model_parallel_size=8)


def qwen25_72b_peft_8gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return LoRA of Qwen2.5-72B in packs of 8192 tokens on 8 H100s: TP 8 x DP 1.

    Upstream's topology. 17 GiB of state per GPU.
    """
    return _recipe(
        "qwen25_72b_peft_8gpu_h100_bf16_8k_recipe", _QWEN25_72B, 8192, num_gpus=8, tensor_model_parallel_size=8
    )


def qwen25_72b_peft_16gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return LoRA of Qwen2.5-72B in packs of 32768 tokens on 16 H100s: TP 8 x CP 2 x DP 1.

    Upstream's TP and PP. CP 2 leaves 16384 tokens to a rank. Whole layers are recomputed. 17 GiB of state per GPU.
    """
    return _recipe(
        "qwen25_72b_peft_16gpu_h100_bf16_32k_recipe",
        _QWEN25_72B,
        32768,
        recompute="full",
        num_gpus=16,
        tensor_model_parallel_size=8,
        context_parallel_size=2,
    )


def qwen25_72b_peft_32gpu_h100_bf16_128k_recipe() -> SFTRecipe:
    """Return LoRA of Qwen2.5-72B in packs of 131072 tokens on 32 H100s: TP 8 x CP 4 x DP 1.

    Upstream's TP and PP. CP 4 leaves 32768 tokens to a rank. Whole layers are recomputed. 17 GiB of state per GPU.
    """
    return _recipe(
        "qwen25_72b_peft_32gpu_h100_bf16_128k_recipe",
        _QWEN25_72B,
        131072,
        recompute="full",
        num_gpus=32,
        tensor_model_parallel_size=8,
        context_parallel_size=4,
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
    return SFTRecipe.from_mapping(
        {
            "name": name,
            "data": {"train": "data/chats.jsonl", "validation_fraction": 0.05},
            "tokenizer": {"name_or_path": model.hub_id},
            "packing": {"packed_sequence_size": packed_sequence_size},
            "parallelism": {"sequence_parallel": parallelism.get("tensor_model_parallel_size", 1) > 1, **parallelism},
            "batch": {"tokens_per_step": max(524288, 16 * packed_sequence_size)},
            "model": {"name": model.lora if is_lora else model.full, "recompute": recompute},
            "method": {"kind": "lora" if is_lora else "full"},
            "checkpoint": {"pretrained": f"checkpoints/{model.hub_id.rpartition('/')[2]}", "folder": f"runs/{name}"},
        }
    )
