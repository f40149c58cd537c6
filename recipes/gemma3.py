"""Recipes for Gemma 3 1B, the text model: full SFT and LoRA in packs of 4096, 8192 and 32768 tokens.

Positions reach 32768. Windowed attention rules out the ring of context parallelism, and one key-value head rules out
all-to-all, so 32768 tokens are spread by tensor parallelism: 262144 logits a token need it. The larger Gemma 3 models
are vision-language ones, whose recipes upstream trains unpacked.

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


_GEMMA_3_1B = _Model(
    hub_id="google/gemma-3-1b-it",
    full="gemma3_1b_sft_1gpu_h100_bf16_config",
    lora="gemma3_1b_peft_1gpu_h100_bf16_config",
)


def gemma3_1b_sft_1gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return full SFT of Gemma 3 1B in packs of 4096 tokens on 1 H100: DP 1.

    Upstream's topology. 17 GiB of state per GPU.
    """
    return _recipe("gemma3_1b_sft_1gpu_h100_bf16_recipe", _GEMMA_3_1B, 4096, num_gpus=1)


def gemma3_1b_sft_1gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return full SFT of Gemma 3 1B in packs of 8192 tokens on 1 H100: DP 1.

    Upstream's topology. 17 GiB of state per GPU.
    """
    return _recipe("gemma3_1b_sft_1gpu_h100_bf16_8k_recipe", _GEMMA_3_1B, 8192, num_gpus=1)


def gemma3_1b_sft_4gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return full SFT of Gemma 3 1B in packs of 32768 tokens on 4 H100s: TP 4 x DP 1.

    TP 4 instead of upstream's 1 splits activations and logits. 4 GiB of state per GPU.
    """
    return _recipe(
        "gemma3_1b_sft_4gpu_h100_bf16_32k_recipe", _GEMMA_3_1B, 32768, num_gpus=4, tensor_model_parallel_size=4
    )


def gemma3_1b_peft_1gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return LoRA of Gemma 3 1B in packs of 4096 tokens on 1 H100: DP 1.

    Upstream's topology. 2 GiB of state per GPU.
    """
    return _recipe("gemma3_1b_peft_1gpu_h100_bf16_recipe", _GEMMA_3_1B, 4096, num_gpus=1)


def gemma3_1b_peft_1gpu_h100_bf16_8k_recipe() -> SFTRecipe:
    """Return LoRA of Gemma 3 1B in packs of 8192 tokens on 1 H100: DP 1.

    Upstream's topology. 2 GiB of state per GPU.
    """
    return _recipe("gemma3_1b_peft_1gpu_h100_bf16_8k_recipe", _GEMMA_3_1B, 8192, num_gpus=1)


def gemma3_1b_peft_4gpu_h100_bf16_32k_recipe() -> SFTRecipe:
    """Return LoRA of Gemma 3 1B in packs of 32768 tokens on 4 H100s: TP 4 x DP 1.

    TP 4 instead of upstream's 1 splits activations and logits. 0.5 GiB of state per GPU.
    """
    return _recipe(
        "gemma3_1b_peft_4gpu_h100_bf16_32k_recipe", _GEMMA_3_1B, 32768, num_gpus=4, tensor_model_parallel_size=4
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
