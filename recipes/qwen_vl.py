"""Recipes for Qwen2.5-VL and Qwen3-VL: the host reads images and text from the hub and packs each micro batch.

Such rows are packed during the run, not before it: nothing is built, and `micro_batch_size` says how many conversations
may share a row. The data here is CORD-v2, which the host knows by name: 800 receipts, so that 100 steps of 32 are 4
epochs. Name your own in `data`, and set `schedule.train_iters`, because the host does not count epochs of such data.

State per GPU, as the docstrings name it: parameters / TP of 2 + 4 + 12 / DP bytes for full SFT (bf16 weights, fp32
gradients, fp32 weights and both moments of Adam, spread over data-parallel ranks); of 2 bytes for LoRA. Activations and
logits come on top; whole layers are recomputed for full SFT.
"""

from collections.abc import Callable
from typing import Literal

from bridgepack import SFTRecipe
from bridgepack.config.recipe.rows import SAME, machines, more_gpus, recipe_function


def _row(
    stem: str,
    title: str,
    task: Literal["sft", "peft"],
    num_gpus: int,
    upstream_gpus: int,
    why: str,
    state_gib: int,
    *,
    packs_in_step: bool = False,
    **sizes: int,
) -> Callable[[], SFTRecipe]:
    """Return a function that returns one recipe, based on upstream's recipe for another number of GPUs."""
    name = f"{stem}_{task}_{num_gpus}gpu_h100_bf16_recipe"
    base = f"{stem}_{task}_{upstream_gpus}gpu_h100_bf16_config"
    is_lora, hub_name = task == "peft", f"{title.replace(' ', '-')}-Instruct"
    parallelism = {"num_gpus": num_gpus, **sizes}
    values = {
        "name": name,
        "data": {
            "train": {"dataset": "cord_v2", "split": "train"},
            "validation": {"dataset": "cord_v2", "split": "validation"},
            "layout": {"kind": "chat", "messages": [{"from_column": "conversation"}]},
        },
        "tokenizer": {"name_or_path": f"Qwen/{hub_name}"},
        "packing": {"mode": "in_batch", "packed_sequence_size": 4096},
        "parallelism": parallelism,
        "batch": {"micro_batch_size": 2, "global_batch_size": 32, "eval_micro_batch_size": 2},
        "schedule": {"train_iters": 100, "eval_interval": 25, "eval_iters": 3},
        "model": {"name": base, "recompute": None if is_lora else "full"},
        "method": {"kind": "lora" if is_lora else "full"},
        "checkpoint": {"pretrained": f"checkpoints/{hub_name}", "folder": f"runs/{name}"},
        "bridge_overrides": {"dataset": {"defer_in_batch_packing_to_step": True}} if packs_in_step else {},
    }
    own = "This family's forward step packs by itself, after the images are in." if packs_in_step else ""
    summary = f"of {title} on {machines(parallelism)}, two conversations of up to 4096 tokens in a row."
    return recipe_function(__name__, values, summary, why, f"{state_gib} GiB of state per GPU.", own)


qwen25_vl_3b_sft_2gpu_h100_bf16_recipe = _row(
    "qwen25_vl_3b", "Qwen2.5-VL 3B", "sft", 2, 1, more_gpus("TP and PP", 1, 63), 42
)
qwen25_vl_3b_peft_1gpu_h100_bf16_recipe = _row("qwen25_vl_3b", "Qwen2.5-VL 3B", "peft", 1, 1, SAME, 7)
qwen25_vl_7b_sft_4gpu_h100_bf16_recipe = _row(
    "qwen25_vl_7b", "Qwen2.5-VL 7B", "sft", 4, 2, more_gpus("TP and PP", 2, 69), 46, tensor_model_parallel_size=2
)
qwen25_vl_7b_peft_1gpu_h100_bf16_recipe = _row("qwen25_vl_7b", "Qwen2.5-VL 7B", "peft", 1, 1, SAME, 15)
qwen3_vl_8b_sft_4gpu_h100_bf16_recipe = _row(
    "qwen3_vl_8b",
    "Qwen3-VL 8B",
    "sft",
    4,
    2,
    more_gpus("TP and PP", 2, 73),
    49,
    packs_in_step=True,
    tensor_model_parallel_size=2,
)
qwen3_vl_8b_peft_1gpu_h100_bf16_recipe = _row("qwen3_vl_8b", "Qwen3-VL 8B", "peft", 1, 1, SAME, 16, packs_in_step=True)
