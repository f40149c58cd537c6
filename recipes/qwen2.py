"""Recipes for Qwen2.5: full SFT and LoRA in packs of 4096, 8192, 32768 and 131072 tokens.

Positions of the base models reach 131072; those of the Instruct models 32768, and further with YaRN only.
"""

from bridgepack.config.recipe.rows import SAME, SAME_TP_PP, Model, more_gpus, more_tp

_7B = Model(module=__name__, stem="qwen25_7b", hub_id="Qwen/Qwen2.5-7B", full_gpus=2, lora_gpus=1)
_72B = Model(module=__name__, stem="qwen25_72b", hub_id="Qwen/Qwen2.5-72B", full_gpus=32, lora_gpus=8)

qwen25_7b_sft_4gpu_h100_bf16_recipe = _7B.row("sft", 4096, 4, more_gpus("TP and PP", 2, 64), 43, TP=2)
qwen25_7b_sft_8gpu_h100_bf16_8k_recipe = _7B.row("sft", 8192, 8, more_gpus("TP and PP", 2, 64), 32, TP=2)
qwen25_7b_sft_8gpu_h100_bf16_32k_recipe = _7B.row("sft", 32768, 8, more_tp(4, 2), 21, TP=4, CP=2)
qwen25_7b_sft_16gpu_h100_bf16_128k_recipe = _7B.row("sft", 131072, 16, more_tp(4, 2), 16, recompute="full", TP=4, CP=4)
qwen25_7b_peft_1gpu_h100_bf16_recipe = _7B.row("peft", 4096, 1, SAME, 14)
qwen25_7b_peft_2gpu_h100_bf16_8k_recipe = _7B.row("peft", 8192, 2, more_tp(2, 1), 7, TP=2)
qwen25_7b_peft_8gpu_h100_bf16_32k_recipe = _7B.row("peft", 32768, 8, more_tp(2, 1), 7, TP=2, CP=4)
qwen25_7b_peft_8gpu_h100_bf16_128k_recipe = _7B.row("peft", 131072, 8, more_tp(2, 1), 7, recompute="full", TP=2, CP=4)

qwen25_72b_sft_32gpu_h100_bf16_recipe = _72B.row("sft", 4096, 32, SAME, 38, TP=8, PP=4)
qwen25_72b_sft_32gpu_h100_bf16_8k_recipe = _72B.row("sft", 8192, 32, SAME, 38, TP=8, PP=4)
qwen25_72b_sft_64gpu_h100_bf16_32k_recipe = _72B.row(
    "sft", 32768, 64, SAME_TP_PP, 25, recompute="full", TP=8, PP=4, CP=2
)
qwen25_72b_sft_128gpu_h100_bf16_128k_recipe = _72B.row(
    "sft", 131072, 128, SAME_TP_PP, 19, recompute="full", TP=8, PP=4, CP=4
)
qwen25_72b_peft_8gpu_h100_bf16_recipe = _72B.row("peft", 4096, 8, SAME, 17, TP=8)
qwen25_72b_peft_8gpu_h100_bf16_8k_recipe = _72B.row("peft", 8192, 8, SAME, 17, TP=8)
qwen25_72b_peft_16gpu_h100_bf16_32k_recipe = _72B.row("peft", 32768, 16, SAME_TP_PP, 17, recompute="full", TP=8, CP=2)
qwen25_72b_peft_32gpu_h100_bf16_128k_recipe = _72B.row("peft", 131072, 32, SAME_TP_PP, 17, recompute="full", TP=8, CP=4)
