"""Recipes for dense Qwen3: full SFT and LoRA in packs of 4096, 8192 and 32768 tokens.

Positions reach 40960. Beyond that a model needs YaRN, for which upstream has a base of the 0.6B only.
"""

from bridgepack.config.recipe.rows import SAME, SAME_TP_PP, Model, more_tp

_600M = Model(module=__name__, stem="qwen3_600m", hub_id="Qwen/Qwen3-0.6B", full_gpus=1, lora_gpus=1)
_1P7B = Model(module=__name__, stem="qwen3_1p7b", hub_id="Qwen/Qwen3-1.7B", full_gpus=1, lora_gpus=1)
_4B = Model(module=__name__, stem="qwen3_4b", hub_id="Qwen/Qwen3-4B", full_gpus=2, lora_gpus=1)
_8B = Model(module=__name__, stem="qwen3_8b", hub_id="Qwen/Qwen3-8B", full_gpus=4, lora_gpus=1)
_14B = Model(module=__name__, stem="qwen3_14b", hub_id="Qwen/Qwen3-14B", full_gpus=8, lora_gpus=1)
_32B = Model(module=__name__, stem="qwen3_32b", hub_id="Qwen/Qwen3-32B", full_gpus=16, lora_gpus=1)

qwen3_600m_sft_1gpu_h100_bf16_recipe = _600M.row("sft", 4096, 1, SAME, 10)
qwen3_600m_sft_1gpu_h100_bf16_8k_recipe = _600M.row("sft", 8192, 1, SAME, 10)
qwen3_600m_sft_4gpu_h100_bf16_32k_recipe = _600M.row("sft", 32768, 4, SAME_TP_PP, 5, CP=4)
qwen3_600m_sft_8gpu_h100_bf16_yarn_128k_recipe = _600M.row(
    "sft",
    131072,
    8,
    SAME,
    4,
    variant="yarn",
    recompute="full",
    base="qwen3_600m_sft_8gpu_h100_bf16_yarn_128k_config",
    CP=8,
)
qwen3_600m_peft_1gpu_h100_bf16_recipe = _600M.row("peft", 4096, 1, SAME, 1)
qwen3_600m_peft_1gpu_h100_bf16_8k_recipe = _600M.row("peft", 8192, 1, SAME, 1)
qwen3_600m_peft_4gpu_h100_bf16_32k_recipe = _600M.row("peft", 32768, 4, SAME_TP_PP, 1, CP=4)

qwen3_1p7b_sft_1gpu_h100_bf16_recipe = _1P7B.row("sft", 4096, 1, SAME, 29)
qwen3_1p7b_sft_1gpu_h100_bf16_8k_recipe = _1P7B.row("sft", 8192, 1, SAME, 29)
qwen3_1p7b_sft_4gpu_h100_bf16_32k_recipe = _1P7B.row("sft", 32768, 4, SAME_TP_PP, 14, CP=4)
qwen3_1p7b_peft_1gpu_h100_bf16_recipe = _1P7B.row("peft", 4096, 1, SAME, 3)
qwen3_1p7b_peft_1gpu_h100_bf16_8k_recipe = _1P7B.row("peft", 8192, 1, SAME, 3)
qwen3_1p7b_peft_4gpu_h100_bf16_32k_recipe = _1P7B.row("peft", 32768, 4, SAME_TP_PP, 3, CP=4)

qwen3_4b_sft_2gpu_h100_bf16_recipe = _4B.row("sft", 4096, 2, SAME, 34, TP=2)
qwen3_4b_sft_2gpu_h100_bf16_8k_recipe = _4B.row("sft", 8192, 2, SAME, 34, TP=2)
qwen3_4b_sft_8gpu_h100_bf16_32k_recipe = _4B.row("sft", 32768, 8, SAME_TP_PP, 17, TP=2, CP=4)
qwen3_4b_peft_1gpu_h100_bf16_recipe = _4B.row("peft", 4096, 1, SAME, 7)
qwen3_4b_peft_1gpu_h100_bf16_8k_recipe = _4B.row("peft", 8192, 1, SAME, 7)
qwen3_4b_peft_4gpu_h100_bf16_32k_recipe = _4B.row("peft", 32768, 4, SAME_TP_PP, 7, CP=4)

qwen3_8b_sft_4gpu_h100_bf16_recipe = _8B.row("sft", 4096, 4, SAME, 34, TP=4)
qwen3_8b_sft_4gpu_h100_bf16_8k_recipe = _8B.row("sft", 8192, 4, SAME, 34, TP=4)
qwen3_8b_sft_8gpu_h100_bf16_32k_recipe = _8B.row(
    "sft", 32768, 8, SAME, 23, base="qwen3_8b_sft_8gpu_h100_bf16_32k_config", TP=4, CP=2
)
qwen3_8b_peft_1gpu_h100_bf16_recipe = _8B.row("peft", 4096, 1, SAME, 15)
qwen3_8b_peft_2gpu_h100_bf16_8k_recipe = _8B.row("peft", 8192, 2, more_tp(2, 1), 8, TP=2)
qwen3_8b_peft_8gpu_h100_bf16_32k_recipe = _8B.row("peft", 32768, 8, more_tp(2, 1), 8, TP=2, CP=4)

qwen3_14b_sft_8gpu_h100_bf16_recipe = _14B.row("sft", 4096, 8, SAME, 31, TP=8)
qwen3_14b_sft_8gpu_h100_bf16_8k_recipe = _14B.row("sft", 8192, 8, SAME, 31, TP=8)
qwen3_14b_sft_16gpu_h100_bf16_32k_recipe = _14B.row("sft", 32768, 16, SAME_TP_PP, 21, TP=8, CP=2)
qwen3_14b_peft_2gpu_h100_bf16_recipe = _14B.row("peft", 4096, 2, more_tp(2, 1), 14, TP=2)
qwen3_14b_peft_2gpu_h100_bf16_8k_recipe = _14B.row("peft", 8192, 2, more_tp(2, 1), 14, TP=2)
qwen3_14b_peft_8gpu_h100_bf16_32k_recipe = _14B.row("peft", 32768, 8, more_tp(4, 1), 7, TP=4, CP=2)

qwen3_32b_sft_16gpu_h100_bf16_recipe = _32B.row("sft", 4096, 16, SAME, 34, recompute="full", TP=8, PP=2)
qwen3_32b_sft_16gpu_h100_bf16_8k_recipe = _32B.row("sft", 8192, 16, SAME, 34, recompute="full", TP=8, PP=2)
qwen3_32b_sft_32gpu_h100_bf16_32k_recipe = _32B.row(
    "sft", 32768, 32, SAME_TP_PP, 23, recompute="full", TP=8, PP=2, CP=2
)
qwen3_32b_peft_2gpu_h100_bf16_recipe = _32B.row("peft", 4096, 2, more_tp(2, 1), 31, recompute="full", TP=2)
qwen3_32b_peft_4gpu_h100_bf16_8k_recipe = _32B.row("peft", 8192, 4, more_tp(4, 1), 15, recompute="full", TP=4)
qwen3_32b_peft_8gpu_h100_bf16_32k_recipe = _32B.row("peft", 32768, 8, more_tp(8, 1), 8, recompute="full", TP=8)
