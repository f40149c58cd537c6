"""Recipes for Llama 3.1 and 3.2: full SFT and LoRA in packs of 4096, 8192, 32768 and 131072 tokens.

Tokenizers are those of the Instruct models, which have a chat template. Rotary positions reach 131072.

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


_LLAMA_32_1B = _Model(
    hub_id="meta-llama/Llama-3.2-1B-Instruct",
    full="llama32_1b_sft_1gpu_h100_bf16_config",
    lora="llama32_1b_peft_1gpu_h100_bf16_config",
)
_LLAMA_32_3B = _Model(
    hub_id="meta-llama/Llama-3.2-3B-Instruct",
    full="llama32_3b_sft_1gpu_h100_bf16_config",
    lora="llama32_3b_peft_1gpu_h100_bf16_config",
)
_LLAMA_31_8B = _Model(
    hub_id="meta-llama/Llama-3.1-8B-Instruct",
    full="llama31_8b_sft_2gpu_h100_bf16_config",
    lora="llama31_8b_peft_1gpu_h100_bf16_config",
)
_LLAMA_31_70B = _Model(
    hub_id="meta-llama/Llama-3.1-70B-Instruct",
    full="llama31_70b_sft_32gpu_h100_bf16_config",
    lora="llama31_70b_peft_8gpu_h100_bf16_config",
)


def llama32_1b_sft_1gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return full SFT of Llama 3.2 1B in packs of 4096 tokens on 1 H100: DP 1.

    Upstream's topology. 21 GiB of state per GPU.
    """
    return _recipe("llama32_1b_sft_1gpu_h100_bf16_recipe", _LLAMA_32_1B, 4096, num_gpus=1)


def llama32_1b_sft_1gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return full SFT of Llama 3.2 1B in packs of 8192 tokens on 1 H100: DP 1.

    Upstream's topology. 21 GiB of state per GPU.
    """
    return _recipe("llama32_1b_sft_1gpu_h100_bf16_8k_recipe", _LLAMA_32_1B, 8192, num_gpus=1)


def llama32_1b_sft_4gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return full SFT of Llama 3.2 1B in packs of 32768 tokens on 4 H100s: CP 4 x DP 1.

    Upstream's TP and PP. CP 4 leaves 8192 tokens to a rank. 10 GiB of state per GPU.
    """
    return _recipe("llama32_1b_sft_4gpu_h100_bf16_32k_recipe", _LLAMA_32_1B, 32768, num_gpus=4, context_parallel_size=4)


def llama32_1b_sft_8gpu_h100_bf16_128k_recipe() -> SFTRecipe:
    """Return full SFT of Llama 3.2 1B in packs of 131072 tokens on 8 H100s: CP 8 x DP 1.

    Upstream's TP and PP. CP 8 leaves 16384 tokens to a rank. Whole layers are recomputed. 9 GiB of state per GPU.
    """
    return _recipe(
        "llama32_1b_sft_8gpu_h100_bf16_128k_recipe",
        _LLAMA_32_1B,
        131072,
        recompute="full",
        num_gpus=8,
        context_parallel_size=8,
    )


def llama32_1b_peft_1gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return LoRA of Llama 3.2 1B in packs of 4096 tokens on 1 H100: DP 1.

    Upstream's topology. 2 GiB of state per GPU.
    """
    return _recipe("llama32_1b_peft_1gpu_h100_bf16_recipe", _LLAMA_32_1B, 4096, num_gpus=1)


def llama32_1b_peft_1gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return LoRA of Llama 3.2 1B in packs of 8192 tokens on 1 H100: DP 1.

    Upstream's topology. 2 GiB of state per GPU.
    """
    return _recipe("llama32_1b_peft_1gpu_h100_bf16_8k_recipe", _LLAMA_32_1B, 8192, num_gpus=1)


def llama32_1b_peft_4gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return LoRA of Llama 3.2 1B in packs of 32768 tokens on 4 H100s: CP 4 x DP 1.

    Upstream's TP and PP. CP 4 leaves 8192 tokens to a rank. 2 GiB of state per GPU.
    """
    return _recipe(
        "llama32_1b_peft_4gpu_h100_bf16_32k_recipe", _LLAMA_32_1B, 32768, num_gpus=4, context_parallel_size=4
    )


def llama32_1b_peft_8gpu_h100_bf16_128k_recipe() -> SFTRecipe:
    """Return LoRA of Llama 3.2 1B in packs of 131072 tokens on 8 H100s: CP 8 x DP 1.

    Upstream's TP and PP. CP 8 leaves 16384 tokens to a rank. Whole layers are recomputed. 2 GiB of state per GPU.
    """
    return _recipe(
        "llama32_1b_peft_8gpu_h100_bf16_128k_recipe",
        _LLAMA_32_1B,
        131072,
        recompute="full",
        num_gpus=8,
        context_parallel_size=8,
    )


def llama32_3b_sft_2gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return full SFT of Llama 3.2 3B in packs of 4096 tokens on 2 H100s: DP 2.

    Upstream's TP and PP; on its 1 GPU 54 GiB of state leave too little for activations and logits. 36 GiB of state
    per GPU.
    """
    return _recipe("llama32_3b_sft_2gpu_h100_bf16_recipe", _LLAMA_32_3B, 4096, num_gpus=2)


def llama32_3b_sft_4gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return full SFT of Llama 3.2 3B in packs of 8192 tokens on 4 H100s: DP 4.

    Upstream's TP and PP; on its 1 GPU 54 GiB of state leave too little for activations and logits. 27 GiB of state
    per GPU.
    """
    return _recipe("llama32_3b_sft_4gpu_h100_bf16_8k_recipe", _LLAMA_32_3B, 8192, num_gpus=4)


def llama32_3b_sft_8gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return full SFT of Llama 3.2 3B in packs of 32768 tokens on 8 H100s: TP 2 x CP 4 x DP 1.

    TP 2 instead of upstream's 1 splits activations and logits. CP 4 leaves 8192 tokens to a rank. 13 GiB of state
    per GPU.
    """
    return _recipe(
        "llama32_3b_sft_8gpu_h100_bf16_32k_recipe",
        _LLAMA_32_3B,
        32768,
        num_gpus=8,
        tensor_model_parallel_size=2,
        context_parallel_size=4,
    )


def llama32_3b_sft_8gpu_h100_bf16_128k_recipe() -> SFTRecipe:
    """Return full SFT of Llama 3.2 3B in packs of 131072 tokens on 8 H100s: TP 2 x CP 4 x DP 1.

    TP 2 instead of upstream's 1 splits activations and logits. CP 4 leaves 32768 tokens to a rank. Whole layers are
    recomputed. 13 GiB of state per GPU.
    """
    return _recipe(
        "llama32_3b_sft_8gpu_h100_bf16_128k_recipe",
        _LLAMA_32_3B,
        131072,
        recompute="full",
        num_gpus=8,
        tensor_model_parallel_size=2,
        context_parallel_size=4,
    )


def llama32_3b_peft_1gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return LoRA of Llama 3.2 3B in packs of 4096 tokens on 1 H100: DP 1.

    Upstream's topology. 6 GiB of state per GPU.
    """
    return _recipe("llama32_3b_peft_1gpu_h100_bf16_recipe", _LLAMA_32_3B, 4096, num_gpus=1)


def llama32_3b_peft_1gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return LoRA of Llama 3.2 3B in packs of 8192 tokens on 1 H100: DP 1.

    Upstream's topology. 6 GiB of state per GPU.
    """
    return _recipe("llama32_3b_peft_1gpu_h100_bf16_8k_recipe", _LLAMA_32_3B, 8192, num_gpus=1)


def llama32_3b_peft_4gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return LoRA of Llama 3.2 3B in packs of 32768 tokens on 4 H100s: CP 4 x DP 1.

    Upstream's TP and PP. CP 4 leaves 8192 tokens to a rank. 6 GiB of state per GPU.
    """
    return _recipe(
        "llama32_3b_peft_4gpu_h100_bf16_32k_recipe", _LLAMA_32_3B, 32768, num_gpus=4, context_parallel_size=4
    )


def llama32_3b_peft_8gpu_h100_bf16_128k_recipe() -> SFTRecipe:
    """Return LoRA of Llama 3.2 3B in packs of 131072 tokens on 8 H100s: CP 8 x DP 1.

    Upstream's TP and PP. CP 8 leaves 16384 tokens to a rank. Whole layers are recomputed. 6 GiB of state per GPU.
    """
    return _recipe(
        "llama32_3b_peft_8gpu_h100_bf16_128k_recipe",
        _LLAMA_32_3B,
        131072,
        recompute="full",
        num_gpus=8,
        context_parallel_size=8,
    )


def llama31_8b_sft_4gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return full SFT of Llama 3.1 8B in packs of 4096 tokens on 4 H100s: TP 2 x DP 2.

    Upstream's TP and PP; on its 2 GPUs 67 GiB of state leave too little for activations and logits. 45 GiB of state
    per GPU.
    """
    return _recipe("llama31_8b_sft_4gpu_h100_bf16_recipe", _LLAMA_31_8B, 4096, num_gpus=4, tensor_model_parallel_size=2)


def llama31_8b_sft_8gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return full SFT of Llama 3.1 8B in packs of 8192 tokens on 8 H100s: TP 2 x DP 4.

    Upstream's TP and PP; on its 2 GPUs 67 GiB of state leave too little for activations and logits. 34 GiB of state
    per GPU.
    """
    return _recipe(
        "llama31_8b_sft_8gpu_h100_bf16_8k_recipe", _LLAMA_31_8B, 8192, num_gpus=8, tensor_model_parallel_size=2
    )


def llama31_8b_sft_8gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return full SFT of Llama 3.1 8B in packs of 32768 tokens on 8 H100s: TP 4 x CP 2 x DP 1.

    TP 4 instead of upstream's 2 splits activations and logits. CP 2 leaves 16384 tokens to a rank. 22 GiB of state
    per GPU.
    """
    return _recipe(
        "llama31_8b_sft_8gpu_h100_bf16_32k_recipe",
        _LLAMA_31_8B,
        32768,
        num_gpus=8,
        tensor_model_parallel_size=4,
        context_parallel_size=2,
    )


def llama31_8b_sft_16gpu_h100_bf16_128k_recipe() -> SFTRecipe:
    """Return full SFT of Llama 3.1 8B in packs of 131072 tokens on 16 H100s: TP 4 x CP 4 x DP 1.

    TP 4 instead of upstream's 2 splits activations and logits. CP 4 leaves 32768 tokens to a rank. Whole layers are
    recomputed. 17 GiB of state per GPU.
    """
    return _recipe(
        "llama31_8b_sft_16gpu_h100_bf16_128k_recipe",
        _LLAMA_31_8B,
        131072,
        recompute="full",
        num_gpus=16,
        tensor_model_parallel_size=4,
        context_parallel_size=4,
    )


def llama31_8b_peft_1gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return LoRA of Llama 3.1 8B in packs of 4096 tokens on 1 H100: DP 1.

    Upstream's topology. 15 GiB of state per GPU.
    """
    return _recipe("llama31_8b_peft_1gpu_h100_bf16_recipe", _LLAMA_31_8B, 4096, num_gpus=1)


def llama31_8b_peft_2gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return LoRA of Llama 3.1 8B in packs of 8192 tokens on 2 H100s: TP 2 x DP 1.

    TP 2 instead of upstream's 1 splits activations and logits. 7 GiB of state per GPU.
    """
    return _recipe(
        "llama31_8b_peft_2gpu_h100_bf16_8k_recipe", _LLAMA_31_8B, 8192, num_gpus=2, tensor_model_parallel_size=2
    )


def llama31_8b_peft_8gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return LoRA of Llama 3.1 8B in packs of 32768 tokens on 8 H100s: TP 2 x CP 4 x DP 1.

    TP 2 instead of upstream's 1 splits activations and logits. CP 4 leaves 8192 tokens to a rank. 7 GiB of state
    per GPU.
    """
    return _recipe(
        "llama31_8b_peft_8gpu_h100_bf16_32k_recipe",
        _LLAMA_31_8B,
        32768,
        num_gpus=8,
        tensor_model_parallel_size=2,
        context_parallel_size=4,
    )


def llama31_8b_peft_8gpu_h100_bf16_128k_recipe() -> SFTRecipe:
    """Return LoRA of Llama 3.1 8B in packs of 131072 tokens on 8 H100s: TP 2 x CP 4 x DP 1.

    TP 2 instead of upstream's 1 splits activations and logits. CP 4 leaves 32768 tokens to a rank. Whole layers are
    recomputed. 7 GiB of state per GPU.
    """
    return _recipe(
        "llama31_8b_peft_8gpu_h100_bf16_128k_recipe",
        _LLAMA_31_8B,
        131072,
        recompute="full",
        num_gpus=8,
        tensor_model_parallel_size=2,
        context_parallel_size=4,
    )


def llama31_70b_sft_32gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return full SFT of Llama 3.1 70B in packs of 4096 tokens on 32 H100s: TP 8 x PP 4 x DP 1.

    Upstream's topology. 37 GiB of state per GPU.
    """
    return _recipe(
        "llama31_70b_sft_32gpu_h100_bf16_recipe",
        _LLAMA_31_70B,
        4096,
        num_gpus=32,
        tensor_model_parallel_size=8,
        pipeline_model_parallel_size=4,
    )


def llama31_70b_sft_32gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return full SFT of Llama 3.1 70B in packs of 8192 tokens on 32 H100s: TP 8 x PP 4 x DP 1.

    Upstream's topology. 37 GiB of state per GPU.
    """
    return _recipe(
        "llama31_70b_sft_32gpu_h100_bf16_8k_recipe",
        _LLAMA_31_70B,
        8192,
        num_gpus=32,
        tensor_model_parallel_size=8,
        pipeline_model_parallel_size=4,
    )


def llama31_70b_sft_64gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return full SFT of Llama 3.1 70B in packs of 32768 tokens on 64 H100s: TP 8 x PP 4 x CP 2 x DP 1.

    Upstream's TP and PP. CP 2 leaves 16384 tokens to a rank. Whole layers are recomputed. 25 GiB of state per GPU.
    """
    return _recipe(
        "llama31_70b_sft_64gpu_h100_bf16_32k_recipe",
        _LLAMA_31_70B,
        32768,
        recompute="full",
        num_gpus=64,
        tensor_model_parallel_size=8,
        pipeline_model_parallel_size=4,
        context_parallel_size=2,
    )


def llama31_70b_sft_128gpu_h100_bf16_128k_recipe() -> SFTRecipe:
    """Return full SFT of Llama 3.1 70B in packs of 131072 tokens on 128 H100s: TP 8 x PP 4 x CP 4 x DP 1.

    Upstream's TP and PP. CP 4 leaves 32768 tokens to a rank. Whole layers are recomputed. 18 GiB of state per GPU.
    """
    return _recipe(
        "llama31_70b_sft_128gpu_h100_bf16_128k_recipe",
        _LLAMA_31_70B,
        131072,
        recompute="full",
        num_gpus=128,
        tensor_model_parallel_size=8,
        pipeline_model_parallel_size=4,
        context_parallel_size=4,
    )


def llama31_70b_peft_8gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return LoRA of Llama 3.1 70B in packs of 4096 tokens on 8 H100s: TP 8 x DP 1.

    Upstream's topology. 16 GiB of state per GPU.
    """
    return _recipe(
        "llama31_70b_peft_8gpu_h100_bf16_recipe", _LLAMA_31_70B, 4096, num_gpus=8, tensor_model_parallel_size=8
    )


def llama31_70b_peft_8gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return LoRA of Llama 3.1 70B in packs of 8192 tokens on 8 H100s: TP 8 x DP 1.

    Upstream's topology. 16 GiB of state per GPU.
    """
    return _recipe(
        "llama31_70b_peft_8gpu_h100_bf16_8k_recipe", _LLAMA_31_70B, 8192, num_gpus=8, tensor_model_parallel_size=8
    )


def llama31_70b_peft_16gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return LoRA of Llama 3.1 70B in packs of 32768 tokens on 16 H100s: TP 8 x CP 2 x DP 1.

    Upstream's TP and PP. CP 2 leaves 16384 tokens to a rank. Whole layers are recomputed. 16 GiB of state per GPU.
    """
    return _recipe(
        "llama31_70b_peft_16gpu_h100_bf16_32k_recipe",
        _LLAMA_31_70B,
        32768,
        recompute="full",
        num_gpus=16,
        tensor_model_parallel_size=8,
        context_parallel_size=2,
    )


def llama31_70b_peft_32gpu_h100_bf16_128k_recipe() -> SFTRecipe:
    """Return LoRA of Llama 3.1 70B in packs of 131072 tokens on 32 H100s: TP 8 x CP 4 x DP 1.

    Upstream's TP and PP. CP 4 leaves 32768 tokens to a rank. Whole layers are recomputed. 16 GiB of state per GPU.
    """
    return _recipe(
        "llama31_70b_peft_32gpu_h100_bf16_128k_recipe",
        _LLAMA_31_70B,
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
