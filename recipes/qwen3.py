"""Recipes for dense Qwen3: full SFT and LoRA in packs of 4096, 8192 and 32768 tokens.

Positions reach 40960. Beyond that a model needs YaRN, for which upstream has a base of the 0.6B only.

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


_QWEN3_600M = _Model(
    hub_id="Qwen/Qwen3-0.6B", full="qwen3_600m_sft_1gpu_h100_bf16_config", lora="qwen3_600m_peft_1gpu_h100_bf16_config"
)
_QWEN3_1P7B = _Model(
    hub_id="Qwen/Qwen3-1.7B", full="qwen3_1p7b_sft_1gpu_h100_bf16_config", lora="qwen3_1p7b_peft_1gpu_h100_bf16_config"
)
_QWEN3_4B = _Model(
    hub_id="Qwen/Qwen3-4B", full="qwen3_4b_sft_2gpu_h100_bf16_config", lora="qwen3_4b_peft_1gpu_h100_bf16_config"
)
_QWEN3_8B = _Model(
    hub_id="Qwen/Qwen3-8B", full="qwen3_8b_sft_4gpu_h100_bf16_config", lora="qwen3_8b_peft_1gpu_h100_bf16_config"
)
_QWEN3_14B = _Model(
    hub_id="Qwen/Qwen3-14B", full="qwen3_14b_sft_8gpu_h100_bf16_config", lora="qwen3_14b_peft_1gpu_h100_bf16_config"
)
_QWEN3_32B = _Model(
    hub_id="Qwen/Qwen3-32B", full="qwen3_32b_sft_16gpu_h100_bf16_config", lora="qwen3_32b_peft_1gpu_h100_bf16_config"
)


def qwen3_600m_sft_1gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return full SFT of Qwen3-0.6B in packs of 4096 tokens on 1 H100: DP 1.

    Upstream's topology. 10 GiB of state per GPU.
    """
    return _recipe("qwen3_600m_sft_1gpu_h100_bf16_recipe", _QWEN3_600M, 4096, num_gpus=1)


def qwen3_600m_sft_1gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return full SFT of Qwen3-0.6B in packs of 8192 tokens on 1 H100: DP 1.

    Upstream's topology. 10 GiB of state per GPU.
    """
    return _recipe("qwen3_600m_sft_1gpu_h100_bf16_8k_recipe", _QWEN3_600M, 8192, num_gpus=1)


def qwen3_600m_sft_4gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return full SFT of Qwen3-0.6B in packs of 32768 tokens on 4 H100s: CP 4 x DP 1.

    Upstream's TP and PP. CP 4 leaves 8192 tokens to a rank. 5 GiB of state per GPU.
    """
    return _recipe("qwen3_600m_sft_4gpu_h100_bf16_32k_recipe", _QWEN3_600M, 32768, num_gpus=4, context_parallel_size=4)


def qwen3_600m_sft_8gpu_h100_bf16_yarn_128k_recipe() -> SFTRecipe:
    """Return full SFT of Qwen3-0.6B in packs of 131072 tokens on 8 H100s: CP 8 x DP 1.

    Upstream's topology. CP 8 leaves 16384 tokens to a rank. Whole layers are recomputed. 4 GiB of state per GPU.
    """
    return _recipe(
        "qwen3_600m_sft_8gpu_h100_bf16_yarn_128k_recipe",
        _QWEN3_600M,
        131072,
        recompute="full",
        base="qwen3_600m_sft_8gpu_h100_bf16_yarn_128k_config",
        num_gpus=8,
        context_parallel_size=8,
    )


def qwen3_600m_peft_1gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return LoRA of Qwen3-0.6B in packs of 4096 tokens on 1 H100: DP 1.

    Upstream's topology. 1 GiB of state per GPU.
    """
    return _recipe("qwen3_600m_peft_1gpu_h100_bf16_recipe", _QWEN3_600M, 4096, num_gpus=1)


def qwen3_600m_peft_1gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return LoRA of Qwen3-0.6B in packs of 8192 tokens on 1 H100: DP 1.

    Upstream's topology. 1 GiB of state per GPU.
    """
    return _recipe("qwen3_600m_peft_1gpu_h100_bf16_8k_recipe", _QWEN3_600M, 8192, num_gpus=1)


def qwen3_600m_peft_4gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return LoRA of Qwen3-0.6B in packs of 32768 tokens on 4 H100s: CP 4 x DP 1.

    Upstream's TP and PP. CP 4 leaves 8192 tokens to a rank. 1 GiB of state per GPU.
    """
    return _recipe("qwen3_600m_peft_4gpu_h100_bf16_32k_recipe", _QWEN3_600M, 32768, num_gpus=4, context_parallel_size=4)


def qwen3_1p7b_sft_1gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return full SFT of Qwen3-1.7B in packs of 4096 tokens on 1 H100: DP 1.

    Upstream's topology. 29 GiB of state per GPU.
    """
    return _recipe("qwen3_1p7b_sft_1gpu_h100_bf16_recipe", _QWEN3_1P7B, 4096, num_gpus=1)


def qwen3_1p7b_sft_1gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return full SFT of Qwen3-1.7B in packs of 8192 tokens on 1 H100: DP 1.

    Upstream's topology. 29 GiB of state per GPU.
    """
    return _recipe("qwen3_1p7b_sft_1gpu_h100_bf16_8k_recipe", _QWEN3_1P7B, 8192, num_gpus=1)


def qwen3_1p7b_sft_4gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return full SFT of Qwen3-1.7B in packs of 32768 tokens on 4 H100s: CP 4 x DP 1.

    Upstream's TP and PP. CP 4 leaves 8192 tokens to a rank. 14 GiB of state per GPU.
    """
    return _recipe("qwen3_1p7b_sft_4gpu_h100_bf16_32k_recipe", _QWEN3_1P7B, 32768, num_gpus=4, context_parallel_size=4)


def qwen3_1p7b_peft_1gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return LoRA of Qwen3-1.7B in packs of 4096 tokens on 1 H100: DP 1.

    Upstream's topology. 3 GiB of state per GPU.
    """
    return _recipe("qwen3_1p7b_peft_1gpu_h100_bf16_recipe", _QWEN3_1P7B, 4096, num_gpus=1)


def qwen3_1p7b_peft_1gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return LoRA of Qwen3-1.7B in packs of 8192 tokens on 1 H100: DP 1.

    Upstream's topology. 3 GiB of state per GPU.
    """
    return _recipe("qwen3_1p7b_peft_1gpu_h100_bf16_8k_recipe", _QWEN3_1P7B, 8192, num_gpus=1)


def qwen3_1p7b_peft_4gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return LoRA of Qwen3-1.7B in packs of 32768 tokens on 4 H100s: CP 4 x DP 1.

    Upstream's TP and PP. CP 4 leaves 8192 tokens to a rank. 3 GiB of state per GPU.
    """
    return _recipe("qwen3_1p7b_peft_4gpu_h100_bf16_32k_recipe", _QWEN3_1P7B, 32768, num_gpus=4, context_parallel_size=4)


def qwen3_4b_sft_2gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return full SFT of Qwen3-4B in packs of 4096 tokens on 2 H100s: TP 2 x DP 1.

    Upstream's topology. 34 GiB of state per GPU.
    """
    return _recipe("qwen3_4b_sft_2gpu_h100_bf16_recipe", _QWEN3_4B, 4096, num_gpus=2, tensor_model_parallel_size=2)


def qwen3_4b_sft_2gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return full SFT of Qwen3-4B in packs of 8192 tokens on 2 H100s: TP 2 x DP 1.

    Upstream's topology. 34 GiB of state per GPU.
    """
    return _recipe("qwen3_4b_sft_2gpu_h100_bf16_8k_recipe", _QWEN3_4B, 8192, num_gpus=2, tensor_model_parallel_size=2)


def qwen3_4b_sft_8gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return full SFT of Qwen3-4B in packs of 32768 tokens on 8 H100s: TP 2 x CP 4 x DP 1.

    Upstream's TP and PP. CP 4 leaves 8192 tokens to a rank. 17 GiB of state per GPU.
    """
    return _recipe(
        "qwen3_4b_sft_8gpu_h100_bf16_32k_recipe",
        _QWEN3_4B,
        32768,
        num_gpus=8,
        tensor_model_parallel_size=2,
        context_parallel_size=4,
    )


def qwen3_4b_peft_1gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return LoRA of Qwen3-4B in packs of 4096 tokens on 1 H100: DP 1.

    Upstream's topology. 7 GiB of state per GPU.
    """
    return _recipe("qwen3_4b_peft_1gpu_h100_bf16_recipe", _QWEN3_4B, 4096, num_gpus=1)


def qwen3_4b_peft_1gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return LoRA of Qwen3-4B in packs of 8192 tokens on 1 H100: DP 1.

    Upstream's topology. 7 GiB of state per GPU.
    """
    return _recipe("qwen3_4b_peft_1gpu_h100_bf16_8k_recipe", _QWEN3_4B, 8192, num_gpus=1)


def qwen3_4b_peft_4gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return LoRA of Qwen3-4B in packs of 32768 tokens on 4 H100s: CP 4 x DP 1.

    Upstream's TP and PP. CP 4 leaves 8192 tokens to a rank. 7 GiB of state per GPU.
    """
    return _recipe("qwen3_4b_peft_4gpu_h100_bf16_32k_recipe", _QWEN3_4B, 32768, num_gpus=4, context_parallel_size=4)


def qwen3_8b_sft_4gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return full SFT of Qwen3-8B in packs of 4096 tokens on 4 H100s: TP 4 x DP 1.

    Upstream's topology. 34 GiB of state per GPU.
    """
    return _recipe("qwen3_8b_sft_4gpu_h100_bf16_recipe", _QWEN3_8B, 4096, num_gpus=4, tensor_model_parallel_size=4)


def qwen3_8b_sft_4gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return full SFT of Qwen3-8B in packs of 8192 tokens on 4 H100s: TP 4 x DP 1.

    Upstream's topology. 34 GiB of state per GPU.
    """
    return _recipe("qwen3_8b_sft_4gpu_h100_bf16_8k_recipe", _QWEN3_8B, 8192, num_gpus=4, tensor_model_parallel_size=4)


def qwen3_8b_sft_8gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return full SFT of Qwen3-8B in packs of 32768 tokens on 8 H100s: TP 4 x CP 2 x DP 1.

    Upstream's topology. CP 2 leaves 16384 tokens to a rank. 23 GiB of state per GPU.
    """
    return _recipe(
        "qwen3_8b_sft_8gpu_h100_bf16_32k_recipe",
        _QWEN3_8B,
        32768,
        base="qwen3_8b_sft_8gpu_h100_bf16_32k_config",
        num_gpus=8,
        tensor_model_parallel_size=4,
        context_parallel_size=2,
    )


def qwen3_8b_peft_1gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return LoRA of Qwen3-8B in packs of 4096 tokens on 1 H100: DP 1.

    Upstream's topology. 15 GiB of state per GPU.
    """
    return _recipe("qwen3_8b_peft_1gpu_h100_bf16_recipe", _QWEN3_8B, 4096, num_gpus=1)


def qwen3_8b_peft_2gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return LoRA of Qwen3-8B in packs of 8192 tokens on 2 H100s: TP 2 x DP 1.

    TP 2 instead of upstream's 1 splits activations and logits. 8 GiB of state per GPU.
    """
    return _recipe("qwen3_8b_peft_2gpu_h100_bf16_8k_recipe", _QWEN3_8B, 8192, num_gpus=2, tensor_model_parallel_size=2)


def qwen3_8b_peft_8gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return LoRA of Qwen3-8B in packs of 32768 tokens on 8 H100s: TP 2 x CP 4 x DP 1.

    TP 2 instead of upstream's 1 splits activations and logits. CP 4 leaves 8192 tokens to a rank. 8 GiB of state
    per GPU.
    """
    return _recipe(
        "qwen3_8b_peft_8gpu_h100_bf16_32k_recipe",
        _QWEN3_8B,
        32768,
        num_gpus=8,
        tensor_model_parallel_size=2,
        context_parallel_size=4,
    )


def qwen3_14b_sft_8gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return full SFT of Qwen3-14B in packs of 4096 tokens on 8 H100s: TP 8 x DP 1.

    Upstream's topology. 31 GiB of state per GPU.
    """
    return _recipe("qwen3_14b_sft_8gpu_h100_bf16_recipe", _QWEN3_14B, 4096, num_gpus=8, tensor_model_parallel_size=8)


def qwen3_14b_sft_8gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return full SFT of Qwen3-14B in packs of 8192 tokens on 8 H100s: TP 8 x DP 1.

    Upstream's topology. 31 GiB of state per GPU.
    """
    return _recipe("qwen3_14b_sft_8gpu_h100_bf16_8k_recipe", _QWEN3_14B, 8192, num_gpus=8, tensor_model_parallel_size=8)


def qwen3_14b_sft_16gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return full SFT of Qwen3-14B in packs of 32768 tokens on 16 H100s: TP 8 x CP 2 x DP 1.

    Upstream's TP and PP. CP 2 leaves 16384 tokens to a rank. 21 GiB of state per GPU.
    """
    return _recipe(
        "qwen3_14b_sft_16gpu_h100_bf16_32k_recipe",
        _QWEN3_14B,
        32768,
        num_gpus=16,
        tensor_model_parallel_size=8,
        context_parallel_size=2,
    )


def qwen3_14b_peft_2gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return LoRA of Qwen3-14B in packs of 4096 tokens on 2 H100s: TP 2 x DP 1.

    TP 2 instead of upstream's 1 splits activations and logits. 14 GiB of state per GPU.
    """
    return _recipe("qwen3_14b_peft_2gpu_h100_bf16_recipe", _QWEN3_14B, 4096, num_gpus=2, tensor_model_parallel_size=2)


def qwen3_14b_peft_2gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return LoRA of Qwen3-14B in packs of 8192 tokens on 2 H100s: TP 2 x DP 1.

    TP 2 instead of upstream's 1 splits activations and logits. 14 GiB of state per GPU.
    """
    return _recipe(
        "qwen3_14b_peft_2gpu_h100_bf16_8k_recipe", _QWEN3_14B, 8192, num_gpus=2, tensor_model_parallel_size=2
    )


def qwen3_14b_peft_8gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return LoRA of Qwen3-14B in packs of 32768 tokens on 8 H100s: TP 4 x CP 2 x DP 1.

    TP 4 instead of upstream's 1 splits activations and logits. CP 2 leaves 16384 tokens to a rank. 7 GiB of state
    per GPU.
    """
    return _recipe(
        "qwen3_14b_peft_8gpu_h100_bf16_32k_recipe",
        _QWEN3_14B,
        32768,
        num_gpus=8,
        tensor_model_parallel_size=4,
        context_parallel_size=2,
    )


def qwen3_32b_sft_16gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return full SFT of Qwen3-32B in packs of 4096 tokens on 16 H100s: TP 8 x PP 2 x DP 1.

    Upstream's topology. Whole layers are recomputed. 34 GiB of state per GPU.
    """
    return _recipe(
        "qwen3_32b_sft_16gpu_h100_bf16_recipe",
        _QWEN3_32B,
        4096,
        recompute="full",
        num_gpus=16,
        tensor_model_parallel_size=8,
        pipeline_model_parallel_size=2,
    )


def qwen3_32b_sft_16gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return full SFT of Qwen3-32B in packs of 8192 tokens on 16 H100s: TP 8 x PP 2 x DP 1.

    Upstream's topology. Whole layers are recomputed. 34 GiB of state per GPU.
    """
    return _recipe(
        "qwen3_32b_sft_16gpu_h100_bf16_8k_recipe",
        _QWEN3_32B,
        8192,
        recompute="full",
        num_gpus=16,
        tensor_model_parallel_size=8,
        pipeline_model_parallel_size=2,
    )


def qwen3_32b_sft_32gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return full SFT of Qwen3-32B in packs of 32768 tokens on 32 H100s: TP 8 x PP 2 x CP 2 x DP 1.

    Upstream's TP and PP. CP 2 leaves 16384 tokens to a rank. Whole layers are recomputed. 23 GiB of state per GPU.
    """
    return _recipe(
        "qwen3_32b_sft_32gpu_h100_bf16_32k_recipe",
        _QWEN3_32B,
        32768,
        recompute="full",
        num_gpus=32,
        tensor_model_parallel_size=8,
        pipeline_model_parallel_size=2,
        context_parallel_size=2,
    )


def qwen3_32b_peft_2gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return LoRA of Qwen3-32B in packs of 4096 tokens on 2 H100s: TP 2 x DP 1.

    TP 2 instead of upstream's 1 splits activations and logits. Whole layers are recomputed. 31 GiB of state per
    GPU.
    """
    return _recipe(
        "qwen3_32b_peft_2gpu_h100_bf16_recipe",
        _QWEN3_32B,
        4096,
        recompute="full",
        num_gpus=2,
        tensor_model_parallel_size=2,
    )


def qwen3_32b_peft_4gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return LoRA of Qwen3-32B in packs of 8192 tokens on 4 H100s: TP 4 x DP 1.

    TP 4 instead of upstream's 1 splits activations and logits. Whole layers are recomputed. 15 GiB of state per
    GPU.
    """
    return _recipe(
        "qwen3_32b_peft_4gpu_h100_bf16_8k_recipe",
        _QWEN3_32B,
        8192,
        recompute="full",
        num_gpus=4,
        tensor_model_parallel_size=4,
    )


def qwen3_32b_peft_8gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return LoRA of Qwen3-32B in packs of 32768 tokens on 8 H100s: TP 8 x DP 1.

    TP 8 instead of upstream's 1 splits activations and logits. Whole layers are recomputed. 8 GiB of state per GPU.
    """
    return _recipe(
        "qwen3_32b_peft_8gpu_h100_bf16_32k_recipe",
        _QWEN3_32B,
        32768,
        recompute="full",
        num_gpus=8,
        tensor_model_parallel_size=8,
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
    return SFTRecipe.from_mapping(
        {
            "name": name,
            "data": {"train": "data/chats.jsonl", "validation_fraction": 0.05},
            "tokenizer": {"name_or_path": model.hub_id},
            "packing": {"packed_sequence_size": packed_sequence_size},
            "parallelism": {"sequence_parallel": parallelism.get("tensor_model_parallel_size", 1) > 1, **parallelism},
            "batch": {"tokens_per_step": max(524288, 16 * packed_sequence_size)},
            "model": {"name": base or (model.lora if is_lora else model.full), "recompute": recompute},
            "method": {"kind": "lora" if is_lora else "full"},
            "checkpoint": {"pretrained": f"checkpoints/{model.hub_id.rpartition('/')[2]}", "folder": f"runs/{name}"},
        }
    )
