"""Recipes for gpt-oss: full SFT and LoRA in packs of 4096, 8192, 32768 and 131072 tokens.

Attention has sinks and windows, so context parallelism must be all-to-all (no ring) and divide the 8 key-value heads;
over packed rows it wants cuDNN 9.18. YaRN's positions reach 131072.

State per GPU, as the docstrings name it: parameters / (TP x PP) of 2 + 4 + 12 / (DP x CP) bytes for full SFT (bf16
weights, fp32 gradients, fp32 weights and both moments of Adam, spread over data-parallel ranks), and parameters of
experts / (EP x PP) of 2 + 4 + 12 / (GPUs / EP / PP) bytes; of 2 bytes for LoRA. Activations and logits come on top.
"""

from __future__ import annotations

from typing import NamedTuple

from bridgepack import SFTRecipe


class _Model(NamedTuple):
    """A model on the hub, and the base of full SFT and that of LoRA: recipes that Megatron-Bridge ships."""

    hub_id: str
    full: str
    lora: str


_GPT_OSS_20B = _Model(
    hub_id="openai/gpt-oss-20b",
    full="gpt_oss_20b_sft_8gpu_h100_bf16_config",
    lora="gpt_oss_20b_peft_1gpu_h100_bf16_config",
)
_GPT_OSS_120B = _Model(
    hub_id="openai/gpt-oss-120b",
    full="gpt_oss_120b_sft_32gpu_h100_bf16_config",
    lora="gpt_oss_120b_peft_8gpu_h100_bf16_config",
)


def gpt_oss_20b_sft_8gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return full SFT of gpt-oss 20B in packs of 4096 tokens on 8 H100s: DP 8, EP 8.

    Upstream's topology. Whole layers are recomputed. 53 GiB of state per GPU.
    """
    return _recipe(
        "gpt_oss_20b_sft_8gpu_h100_bf16_recipe",
        _GPT_OSS_20B,
        4096,
        recompute="full",
        num_gpus=8,
        expert_model_parallel_size=8,
    )


def gpt_oss_20b_sft_16gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return full SFT of gpt-oss 20B in packs of 8192 tokens on 16 H100s: DP 16, EP 8.

    Upstream's TP, PP and EP; on its 8 GPUs 53 GiB of state leave too little for activations and logits. Whole
    layers are recomputed. 38 GiB of state per GPU.
    """
    return _recipe(
        "gpt_oss_20b_sft_16gpu_h100_bf16_8k_recipe",
        _GPT_OSS_20B,
        8192,
        recompute="full",
        num_gpus=16,
        expert_model_parallel_size=8,
    )


def gpt_oss_20b_sft_16gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return full SFT of gpt-oss 20B in packs of 32768 tokens on 16 H100s: CP 4 x DP 4, EP 8.

    Upstream's TP, PP and EP. CP 4 leaves 8192 tokens to a rank. Whole layers are recomputed. 38 GiB of state per
    GPU.
    """
    return _recipe(
        "gpt_oss_20b_sft_16gpu_h100_bf16_32k_recipe",
        _GPT_OSS_20B,
        32768,
        recompute="full",
        num_gpus=16,
        context_parallel_size=4,
        expert_model_parallel_size=8,
    )


def gpt_oss_20b_sft_32gpu_h100_bf16_128k_recipe() -> SFTRecipe:
    """Return full SFT of gpt-oss 20B in packs of 131072 tokens on 32 H100s: CP 8 x DP 4, EP 8.

    Upstream's TP, PP and EP. CP 8 leaves 16384 tokens to a rank. Whole layers are recomputed. 31 GiB of state per
    GPU.
    """
    return _recipe(
        "gpt_oss_20b_sft_32gpu_h100_bf16_128k_recipe",
        _GPT_OSS_20B,
        131072,
        recompute="full",
        num_gpus=32,
        context_parallel_size=8,
        expert_model_parallel_size=8,
    )


def gpt_oss_20b_peft_1gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return LoRA of gpt-oss 20B in packs of 4096 tokens on 1 H100: DP 1.

    Upstream's topology. 39 GiB of state per GPU.
    """
    return _recipe("gpt_oss_20b_peft_1gpu_h100_bf16_recipe", _GPT_OSS_20B, 4096, num_gpus=1)


def gpt_oss_20b_peft_1gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return LoRA of gpt-oss 20B in packs of 8192 tokens on 1 H100: DP 1.

    Upstream's topology. Whole layers are recomputed. 39 GiB of state per GPU.
    """
    return _recipe("gpt_oss_20b_peft_1gpu_h100_bf16_8k_recipe", _GPT_OSS_20B, 8192, recompute="full", num_gpus=1)


def gpt_oss_20b_peft_4gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return LoRA of gpt-oss 20B in packs of 32768 tokens on 4 H100s: CP 4 x DP 1, EP 4.

    EP 4 instead of upstream's 1 spreads the experts wider. CP 4 leaves 8192 tokens to a rank. Whole layers are
    recomputed. 12 GiB of state per GPU.
    """
    return _recipe(
        "gpt_oss_20b_peft_4gpu_h100_bf16_32k_recipe",
        _GPT_OSS_20B,
        32768,
        recompute="full",
        num_gpus=4,
        context_parallel_size=4,
        expert_model_parallel_size=4,
    )


def gpt_oss_20b_peft_8gpu_h100_bf16_128k_recipe() -> SFTRecipe:
    """Return LoRA of gpt-oss 20B in packs of 131072 tokens on 8 H100s: CP 8 x DP 1, EP 8.

    EP 8 instead of upstream's 1 spreads the experts wider. CP 8 leaves 16384 tokens to a rank. Whole layers are
    recomputed. 8 GiB of state per GPU.
    """
    return _recipe(
        "gpt_oss_20b_peft_8gpu_h100_bf16_128k_recipe",
        _GPT_OSS_20B,
        131072,
        recompute="full",
        num_gpus=8,
        context_parallel_size=8,
        expert_model_parallel_size=8,
    )


def gpt_oss_120b_sft_64gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return full SFT of gpt-oss 120B in packs of 4096 tokens on 64 H100s: PP 4 x DP 16, EP 8.

    Upstream's TP, PP and EP; on its 32 GPUs 64 GiB of state leave too little for activations and logits. Whole
    layers are recomputed. 43 GiB of state per GPU.
    """
    return _recipe(
        "gpt_oss_120b_sft_64gpu_h100_bf16_recipe",
        _GPT_OSS_120B,
        4096,
        recompute="full",
        num_gpus=64,
        pipeline_model_parallel_size=4,
        expert_model_parallel_size=8,
    )


def gpt_oss_120b_sft_64gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return full SFT of gpt-oss 120B in packs of 8192 tokens on 64 H100s: PP 4 x DP 16, EP 8.

    Upstream's TP, PP and EP; on its 32 GPUs 64 GiB of state leave too little for activations and logits. Whole
    layers are recomputed. 43 GiB of state per GPU.
    """
    return _recipe(
        "gpt_oss_120b_sft_64gpu_h100_bf16_8k_recipe",
        _GPT_OSS_120B,
        8192,
        recompute="full",
        num_gpus=64,
        pipeline_model_parallel_size=4,
        expert_model_parallel_size=8,
    )


def gpt_oss_120b_sft_64gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return full SFT of gpt-oss 120B in packs of 32768 tokens on 64 H100s: PP 4 x CP 4 x DP 4, EP 8.

    Upstream's TP, PP and EP. CP 4 leaves 8192 tokens to a rank. Whole layers are recomputed. 43 GiB of state per
    GPU.
    """
    return _recipe(
        "gpt_oss_120b_sft_64gpu_h100_bf16_32k_recipe",
        _GPT_OSS_120B,
        32768,
        recompute="full",
        num_gpus=64,
        pipeline_model_parallel_size=4,
        context_parallel_size=4,
        expert_model_parallel_size=8,
    )


def gpt_oss_120b_sft_64gpu_h100_bf16_128k_recipe() -> SFTRecipe:
    """Return full SFT of gpt-oss 120B in packs of 131072 tokens on 64 H100s: PP 4 x CP 8 x DP 2, EP 8.

    Upstream's TP, PP and EP. CP 8 leaves 16384 tokens to a rank. Whole layers are recomputed. 43 GiB of state per
    GPU.
    """
    return _recipe(
        "gpt_oss_120b_sft_64gpu_h100_bf16_128k_recipe",
        _GPT_OSS_120B,
        131072,
        recompute="full",
        num_gpus=64,
        pipeline_model_parallel_size=4,
        context_parallel_size=8,
        expert_model_parallel_size=8,
    )


def gpt_oss_120b_peft_8gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return LoRA of gpt-oss 120B in packs of 4096 tokens on 8 H100s: DP 8, EP 8.

    Upstream's topology. Whole layers are recomputed. 31 GiB of state per GPU.
    """
    return _recipe(
        "gpt_oss_120b_peft_8gpu_h100_bf16_recipe",
        _GPT_OSS_120B,
        4096,
        recompute="full",
        num_gpus=8,
        expert_model_parallel_size=8,
    )


def gpt_oss_120b_peft_8gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return LoRA of gpt-oss 120B in packs of 8192 tokens on 8 H100s: DP 8, EP 8.

    Upstream's topology. Whole layers are recomputed. 31 GiB of state per GPU.
    """
    return _recipe(
        "gpt_oss_120b_peft_8gpu_h100_bf16_8k_recipe",
        _GPT_OSS_120B,
        8192,
        recompute="full",
        num_gpus=8,
        expert_model_parallel_size=8,
    )


def gpt_oss_120b_peft_8gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return LoRA of gpt-oss 120B in packs of 32768 tokens on 8 H100s: CP 4 x DP 2, EP 8.

    Upstream's TP, PP and EP. CP 4 leaves 8192 tokens to a rank. Whole layers are recomputed. 31 GiB of state per
    GPU.
    """
    return _recipe(
        "gpt_oss_120b_peft_8gpu_h100_bf16_32k_recipe",
        _GPT_OSS_120B,
        32768,
        recompute="full",
        num_gpus=8,
        context_parallel_size=4,
        expert_model_parallel_size=8,
    )


def gpt_oss_120b_peft_16gpu_h100_bf16_128k_recipe() -> SFTRecipe:
    """Return LoRA of gpt-oss 120B in packs of 131072 tokens on 16 H100s: CP 8 x DP 2, EP 16.

    EP 16 instead of upstream's 8 spreads the experts wider. CP 8 leaves 16384 tokens to a rank. Whole layers are
    recomputed. 17 GiB of state per GPU.
    """
    return _recipe(
        "gpt_oss_120b_peft_16gpu_h100_bf16_128k_recipe",
        _GPT_OSS_120B,
        131072,
        recompute="full",
        num_gpus=16,
        context_parallel_size=8,
        expert_model_parallel_size=16,
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
    exchange = {"cp_comm_type": "a2a"} if parallelism.get("context_parallel_size", 1) > 1 else {}
    return SFTRecipe.from_mapping(
        {
            "name": name,
            "data": {"train": "data/chats.jsonl", "validation_fraction": 0.05},
            "tokenizer": {"name_or_path": model.hub_id},
            "packing": {"packed_sequence_size": packed_sequence_size},
            "parallelism": {**parallelism, **exchange},
            "batch": {"tokens_per_step": max(524288, 16 * packed_sequence_size)},
            "model": {"name": model.lora if is_lora else model.full, "recompute": recompute},
            "method": {"kind": "lora" if is_lora else "full"},
            "checkpoint": {"pretrained": f"checkpoints/{model.hub_id.rpartition('/')[2]}", "folder": f"runs/{name}"},
        }
    )
