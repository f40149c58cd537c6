"""Recipes for Qwen3 with experts: full SFT and LoRA in packs of 4096, 8192 and 32768 tokens.

Positions reach 40960. LoRA adapts only attention, as in upstream's recipes: an adapter on experts would be shared by
all of them.
"""

from bridgepack.config.recipe.rows import SAME, SAME_TP_PP_EP, Model, more_ep

_30B = Model(
    module=__name__,
    stem="qwen3_30b_a3b",
    hub_id="Qwen/Qwen3-30B-A3B",
    full_gpus=16,
    lora_gpus=4,
    lora_targets=("linear_qkv", "linear_proj"),
)
_235B = Model(
    module=__name__,
    stem="qwen3_235b_a22b",
    hub_id="Qwen/Qwen3-235B-A22B",
    full_gpus=64,
    lora_gpus=16,
    lora_targets=("linear_qkv", "linear_proj"),
)

qwen3_30b_a3b_sft_16gpu_h100_bf16_recipe = _30B.row("sft", 4096, 16, SAME, 40, recompute="full", EP=16)
qwen3_30b_a3b_sft_16gpu_h100_bf16_8k_recipe = _30B.row("sft", 8192, 16, SAME, 40, recompute="full", EP=16)
qwen3_30b_a3b_sft_16gpu_h100_bf16_32k_recipe = _30B.row(
    "sft", 32768, 16, SAME_TP_PP_EP, 40, recompute="full", CP=4, EP=16
)
qwen3_30b_a3b_peft_4gpu_h100_bf16_recipe = _30B.row("peft", 4096, 4, SAME, 14, TP=4, EP=4, ETP=1)
qwen3_30b_a3b_peft_4gpu_h100_bf16_8k_recipe = _30B.row("peft", 8192, 4, SAME, 14, TP=4, EP=4, ETP=1)
qwen3_30b_a3b_peft_8gpu_h100_bf16_32k_recipe = _30B.row("peft", 32768, 8, more_ep(8, 4), 7, TP=4, CP=2, EP=8, ETP=1)

qwen3_235b_a22b_sft_128gpu_h100_bf16_recipe = _235B.row(
    "sft", 4096, 128, more_ep(8, 4), 31, recompute="full", TP=4, PP=16, EP=8, ETP=1
)
qwen3_235b_a22b_sft_128gpu_h100_bf16_8k_recipe = _235B.row(
    "sft", 8192, 128, more_ep(8, 4), 31, recompute="full", TP=4, PP=16, EP=8, ETP=1
)
qwen3_235b_a22b_sft_128gpu_h100_bf16_32k_recipe = _235B.row(
    "sft", 32768, 128, more_ep(8, 4), 31, recompute="full", TP=4, PP=16, CP=2, EP=8, ETP=1
)
qwen3_235b_a22b_peft_16gpu_h100_bf16_recipe = _235B.row("peft", 4096, 16, SAME, 27, TP=4, PP=4, EP=4, ETP=1)
qwen3_235b_a22b_peft_16gpu_h100_bf16_8k_recipe = _235B.row(
    "peft", 8192, 16, SAME, 27, recompute="full", TP=4, PP=4, EP=4, ETP=1
)
qwen3_235b_a22b_peft_32gpu_h100_bf16_32k_recipe = _235B.row(
    "peft", 32768, 32, more_ep(8, 4), 14, recompute="full", TP=4, PP=4, CP=2, EP=8, ETP=1
)
