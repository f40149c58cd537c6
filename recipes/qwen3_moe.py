"""Recipes for Qwen3 with experts: full SFT and LoRA in packs of 4096, 8192 and 32768 tokens.

Positions reach 40960. LoRA adapts attention alone, as upstream's own recipes: an adapter on experts would be one for
all of them.

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


_QWEN3_30B_A3B = _Model(
    hub_id="Qwen/Qwen3-30B-A3B",
    full="qwen3_30b_a3b_sft_16gpu_h100_bf16_config",
    lora="qwen3_30b_a3b_peft_4gpu_h100_bf16_config",
)
_QWEN3_235B_A22B = _Model(
    hub_id="Qwen/Qwen3-235B-A22B",
    full="qwen3_235b_a22b_sft_64gpu_h100_bf16_config",
    lora="qwen3_235b_a22b_peft_16gpu_h100_bf16_config",
)
#: Linear layers that get an adapter.
_TARGETS = ("linear_qkv", "linear_proj")


def qwen3_30b_a3b_sft_16gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return full SFT of Qwen3-30B-A3B in packs of 4096 tokens on 16 H100s: DP 16, EP 16.

    Upstream's topology. Whole layers are recomputed. 40 GiB of state per GPU.
    """
    return _recipe(
        "qwen3_30b_a3b_sft_16gpu_h100_bf16_recipe",
        _QWEN3_30B_A3B,
        4096,
        recompute="full",
        num_gpus=16,
        expert_model_parallel_size=16,
    )


def qwen3_30b_a3b_sft_16gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return full SFT of Qwen3-30B-A3B in packs of 8192 tokens on 16 H100s: DP 16, EP 16.

    Upstream's topology. Whole layers are recomputed. 40 GiB of state per GPU.
    """
    return _recipe(
        "qwen3_30b_a3b_sft_16gpu_h100_bf16_8k_recipe",
        _QWEN3_30B_A3B,
        8192,
        recompute="full",
        num_gpus=16,
        expert_model_parallel_size=16,
    )


def qwen3_30b_a3b_sft_16gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return full SFT of Qwen3-30B-A3B in packs of 32768 tokens on 16 H100s: CP 4 x DP 4, EP 16.

    Upstream's TP, PP and EP. CP 4 leaves 8192 tokens to a rank. Whole layers are recomputed. 40 GiB of state per
    GPU.
    """
    return _recipe(
        "qwen3_30b_a3b_sft_16gpu_h100_bf16_32k_recipe",
        _QWEN3_30B_A3B,
        32768,
        recompute="full",
        num_gpus=16,
        context_parallel_size=4,
        expert_model_parallel_size=16,
    )


def qwen3_30b_a3b_peft_4gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return LoRA of Qwen3-30B-A3B in packs of 4096 tokens on 4 H100s: TP 4 x DP 1, EP 4.

    Upstream's topology. 14 GiB of state per GPU.
    """
    return _recipe(
        "qwen3_30b_a3b_peft_4gpu_h100_bf16_recipe",
        _QWEN3_30B_A3B,
        4096,
        num_gpus=4,
        tensor_model_parallel_size=4,
        expert_model_parallel_size=4,
        expert_tensor_parallel_size=1,
    )


def qwen3_30b_a3b_peft_4gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return LoRA of Qwen3-30B-A3B in packs of 8192 tokens on 4 H100s: TP 4 x DP 1, EP 4.

    Upstream's topology. 14 GiB of state per GPU.
    """
    return _recipe(
        "qwen3_30b_a3b_peft_4gpu_h100_bf16_8k_recipe",
        _QWEN3_30B_A3B,
        8192,
        num_gpus=4,
        tensor_model_parallel_size=4,
        expert_model_parallel_size=4,
        expert_tensor_parallel_size=1,
    )


def qwen3_30b_a3b_peft_8gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return LoRA of Qwen3-30B-A3B in packs of 32768 tokens on 8 H100s: TP 4 x CP 2 x DP 1, EP 8.

    EP 8 instead of upstream's 4 spreads the experts wider. CP 2 leaves 16384 tokens to a rank. 7 GiB of state per
    GPU.
    """
    return _recipe(
        "qwen3_30b_a3b_peft_8gpu_h100_bf16_32k_recipe",
        _QWEN3_30B_A3B,
        32768,
        num_gpus=8,
        tensor_model_parallel_size=4,
        context_parallel_size=2,
        expert_model_parallel_size=8,
        expert_tensor_parallel_size=1,
    )


def qwen3_235b_a22b_sft_128gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return full SFT of Qwen3-235B-A22B in packs of 4096 tokens on 128 H100s: TP 4 x PP 16 x DP 2, EP 8.

    EP 8 instead of upstream's 4 spreads the experts wider. Whole layers are recomputed. 31 GiB of state per GPU.
    """
    return _recipe(
        "qwen3_235b_a22b_sft_128gpu_h100_bf16_recipe",
        _QWEN3_235B_A22B,
        4096,
        recompute="full",
        num_gpus=128,
        tensor_model_parallel_size=4,
        pipeline_model_parallel_size=16,
        expert_model_parallel_size=8,
        expert_tensor_parallel_size=1,
    )


def qwen3_235b_a22b_sft_128gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return full SFT of Qwen3-235B-A22B in packs of 8192 tokens on 128 H100s: TP 4 x PP 16 x DP 2, EP 8.

    EP 8 instead of upstream's 4 spreads the experts wider. Whole layers are recomputed. 31 GiB of state per GPU.
    """
    return _recipe(
        "qwen3_235b_a22b_sft_128gpu_h100_bf16_8k_recipe",
        _QWEN3_235B_A22B,
        8192,
        recompute="full",
        num_gpus=128,
        tensor_model_parallel_size=4,
        pipeline_model_parallel_size=16,
        expert_model_parallel_size=8,
        expert_tensor_parallel_size=1,
    )


def qwen3_235b_a22b_sft_128gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return full SFT of Qwen3-235B-A22B in packs of 32768 tokens on 128 H100s: TP 4 x PP 16 x CP 2 x DP 1, EP 8.

    EP 8 instead of upstream's 4 spreads the experts wider. CP 2 leaves 16384 tokens to a rank. Whole layers are
    recomputed. 31 GiB of state per GPU.
    """
    return _recipe(
        "qwen3_235b_a22b_sft_128gpu_h100_bf16_32k_recipe",
        _QWEN3_235B_A22B,
        32768,
        recompute="full",
        num_gpus=128,
        tensor_model_parallel_size=4,
        pipeline_model_parallel_size=16,
        context_parallel_size=2,
        expert_model_parallel_size=8,
        expert_tensor_parallel_size=1,
    )


def qwen3_235b_a22b_peft_16gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return LoRA of Qwen3-235B-A22B in packs of 4096 tokens on 16 H100s: TP 4 x PP 4 x DP 1, EP 4.

    Upstream's topology. 27 GiB of state per GPU.
    """
    return _recipe(
        "qwen3_235b_a22b_peft_16gpu_h100_bf16_recipe",
        _QWEN3_235B_A22B,
        4096,
        num_gpus=16,
        tensor_model_parallel_size=4,
        pipeline_model_parallel_size=4,
        expert_model_parallel_size=4,
        expert_tensor_parallel_size=1,
    )


def qwen3_235b_a22b_peft_16gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return LoRA of Qwen3-235B-A22B in packs of 8192 tokens on 16 H100s: TP 4 x PP 4 x DP 1, EP 4.

    Upstream's topology. Whole layers are recomputed. 27 GiB of state per GPU.
    """
    return _recipe(
        "qwen3_235b_a22b_peft_16gpu_h100_bf16_8k_recipe",
        _QWEN3_235B_A22B,
        8192,
        recompute="full",
        num_gpus=16,
        tensor_model_parallel_size=4,
        pipeline_model_parallel_size=4,
        expert_model_parallel_size=4,
        expert_tensor_parallel_size=1,
    )


def qwen3_235b_a22b_peft_32gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return LoRA of Qwen3-235B-A22B in packs of 32768 tokens on 32 H100s: TP 4 x PP 4 x CP 2 x DP 1, EP 8.

    EP 8 instead of upstream's 4 spreads the experts wider. CP 2 leaves 16384 tokens to a rank. Whole layers are
    recomputed. 14 GiB of state per GPU.
    """
    return _recipe(
        "qwen3_235b_a22b_peft_32gpu_h100_bf16_32k_recipe",
        _QWEN3_235B_A22B,
        32768,
        recompute="full",
        num_gpus=32,
        tensor_model_parallel_size=4,
        pipeline_model_parallel_size=4,
        context_parallel_size=2,
        expert_model_parallel_size=8,
        expert_tensor_parallel_size=1,
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
            "parallelism": {"sequence_parallel": parallelism.get("tensor_model_parallel_size", 1) > 1, **parallelism},
            "batch": {"tokens_per_step": max(524288, 16 * packed_sequence_size)},
            "model": {"name": model.lora if is_lora else model.full, "recompute": recompute},
            "method": method,
            "checkpoint": {"pretrained": f"checkpoints/{model.hub_id.rpartition('/')[2]}", "folder": f"runs/{name}"},
        }
    )
