"""Recipes for Qwen2.5-VL and Qwen3-VL: the host reads images and text from the hub and packs each micro batch.

Such rows are packed during the run, not before it: nothing is built, and `micro_batch_size` says how many conversations
may share a row. The data here is CORD-v2, which the host knows by name: 800 receipts, so that 100 steps of 32 are 4
epochs. Name your own in `data`, and set `schedule.train_iters`: the host counts no epochs of such data.

State per GPU, as the docstrings name it: parameters / TP of 2 + 4 + 12 / DP bytes for full SFT (bf16 weights, fp32
gradients, fp32 weights and both moments of Adam, spread over data-parallel ranks); of 2 bytes for LoRA. Activations and
logits come on top; whole layers are recomputed for full SFT.
"""

from typing import Any

from bridgepack import SFTRecipe


def qwen25_vl_3b_sft_2gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return full SFT of Qwen2.5-VL 3B on 2 H100s: DP 2, two conversations of up to 4096 tokens in a row.

    Upstream's TP and PP; on its 1 GPU 63 GiB of state leave too little for activations and logits. 42 GiB of state per
    GPU.
    """
    return _recipe(
        "qwen25_vl_3b_sft_2gpu_h100_bf16_recipe",
        hub_id="Qwen/Qwen2.5-VL-3B-Instruct",
        base="qwen25_vl_3b_sft_1gpu_h100_bf16_config",
        num_gpus=2,
    )


def qwen25_vl_3b_peft_1gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return LoRA of Qwen2.5-VL 3B on 1 H100: DP 1, two conversations of up to 4096 tokens in a row.

    Upstream's topology. 7 GiB of state per GPU.
    """
    return _recipe(
        "qwen25_vl_3b_peft_1gpu_h100_bf16_recipe",
        hub_id="Qwen/Qwen2.5-VL-3B-Instruct",
        base="qwen25_vl_3b_peft_1gpu_h100_bf16_config",
        num_gpus=1,
    )


def qwen25_vl_7b_sft_4gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return full SFT of Qwen2.5-VL 7B on 4 H100s: TP 2 x DP 2, two conversations of up to 4096 tokens in a row.

    Upstream's TP and PP; on its 2 GPUs 69 GiB of state leave too little for activations and logits. 46 GiB of state per
    GPU.
    """
    return _recipe(
        "qwen25_vl_7b_sft_4gpu_h100_bf16_recipe",
        hub_id="Qwen/Qwen2.5-VL-7B-Instruct",
        base="qwen25_vl_7b_sft_2gpu_h100_bf16_config",
        num_gpus=4,
        tensor_model_parallel_size=2,
    )


def qwen25_vl_7b_peft_1gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return LoRA of Qwen2.5-VL 7B on 1 H100: DP 1, two conversations of up to 4096 tokens in a row.

    Upstream's topology. 15 GiB of state per GPU.
    """
    return _recipe(
        "qwen25_vl_7b_peft_1gpu_h100_bf16_recipe",
        hub_id="Qwen/Qwen2.5-VL-7B-Instruct",
        base="qwen25_vl_7b_peft_1gpu_h100_bf16_config",
        num_gpus=1,
    )


def qwen3_vl_8b_sft_4gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return full SFT of Qwen3-VL 8B on 4 H100s: TP 2 x DP 2, two conversations of up to 4096 tokens in a row.

    Upstream's TP and PP; on its 2 GPUs 73 GiB of state leave too little for activations and logits. 49 GiB of state per
    GPU. This family's forward step packs by itself, after the images are in.
    """
    return _recipe(
        "qwen3_vl_8b_sft_4gpu_h100_bf16_recipe",
        hub_id="Qwen/Qwen3-VL-8B-Instruct",
        base="qwen3_vl_8b_sft_2gpu_h100_bf16_config",
        packs_in_step=True,
        num_gpus=4,
        tensor_model_parallel_size=2,
    )


def qwen3_vl_8b_peft_1gpu_h100_bf16_recipe() -> SFTRecipe:
    """Return LoRA of Qwen3-VL 8B on 1 H100: DP 1, two conversations of up to 4096 tokens in a row.

    Upstream's topology. 16 GiB of state per GPU. This family's forward step packs by itself, after the images are in.
    """
    return _recipe(
        "qwen3_vl_8b_peft_1gpu_h100_bf16_recipe",
        hub_id="Qwen/Qwen3-VL-8B-Instruct",
        base="qwen3_vl_8b_peft_1gpu_h100_bf16_config",
        packs_in_step=True,
        num_gpus=1,
    )


def _recipe(name: str, *, hub_id: str, base: str, packs_in_step: bool = False, **parallelism: int) -> SFTRecipe:
    """Return a recipe; its name says whether every weight is trained or adapters."""
    is_lora = "_peft_" in name
    deferred: dict[str, Any] = {"dataset": {"defer_in_batch_packing_to_step": True}} if packs_in_step else {}
    return SFTRecipe.from_mapping(
        {
            "name": name,
            "data": {
                "train": {"dataset": "cord_v2", "split": "train"},
                "validation": {"dataset": "cord_v2", "split": "validation"},
            },
            "tokenizer": {"name_or_path": hub_id},
            "packing": {"mode": "in_batch", "packed_sequence_size": 4096},
            "parallelism": parallelism,
            "batch": {"micro_batch_size": 2, "global_batch_size": 32, "eval_micro_batch_size": 2},
            "schedule": {"train_iters": 100, "eval_interval": 25, "eval_iters": 3},
            "model": {"name": base, "recompute": None if is_lora else "full"},
            "method": {"kind": "lora" if is_lora else "full"},
            "checkpoint": {"pretrained": f"checkpoints/{hub_id.rpartition('/')[2]}", "folder": f"runs/{name}"},
            "bridge_overrides": deferred,
        }
    )
