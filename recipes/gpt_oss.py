"""Recipes for gpt-oss: full SFT and LoRA in packs of 4096, 8192, 32768 and 131072 tokens.

Attention has sinks and windows, so context parallelism must be all-to-all (no ring) and divide the 8 key-value heads;
over packed rows it wants cuDNN 9.18. YaRN's positions reach 131072.
"""

from bridgepack.config.recipe.rows import SAME, SAME_TP_PP_EP, Model, more_ep, more_gpus

_20B = Model(
    module=__name__,
    stem="gpt_oss_20b",
    title="gpt-oss 20B",
    hub_id="openai/gpt-oss-20b",
    full_gpus=8,
    lora_gpus=1,
    cp_comm_type="a2a",
)
_120B = Model(
    module=__name__,
    stem="gpt_oss_120b",
    title="gpt-oss 120B",
    hub_id="openai/gpt-oss-120b",
    full_gpus=32,
    lora_gpus=8,
    cp_comm_type="a2a",
    recompute="full",
)

gpt_oss_20b_sft_8gpu_h100_bf16_recipe = _20B.row("sft", 4096, 8, SAME, 53, recompute="full", EP=8)
gpt_oss_20b_sft_16gpu_h100_bf16_8k_recipe = _20B.row(
    "sft", 8192, 16, more_gpus("TP, PP and EP", 8, 53), 38, recompute="full", EP=8
)
gpt_oss_20b_sft_16gpu_h100_bf16_32k_recipe = _20B.row("sft", 32768, 16, SAME_TP_PP_EP, 38, recompute="full", CP=4, EP=8)
gpt_oss_20b_sft_32gpu_h100_bf16_128k_recipe = _20B.row(
    "sft", 131072, 32, SAME_TP_PP_EP, 31, recompute="full", CP=8, EP=8
)
gpt_oss_20b_peft_1gpu_h100_bf16_recipe = _20B.row("peft", 4096, 1, SAME, 39)
gpt_oss_20b_peft_1gpu_h100_bf16_8k_recipe = _20B.row("peft", 8192, 1, SAME, 39, recompute="full")
gpt_oss_20b_peft_4gpu_h100_bf16_32k_recipe = _20B.row("peft", 32768, 4, more_ep(4, 1), 12, recompute="full", CP=4, EP=4)
gpt_oss_20b_peft_8gpu_h100_bf16_128k_recipe = _20B.row(
    "peft", 131072, 8, more_ep(8, 1), 8, recompute="full", CP=8, EP=8
)

gpt_oss_120b_sft_64gpu_h100_bf16_recipe = _120B.row("sft", 4096, 64, more_gpus("TP, PP and EP", 32, 64), 43, PP=4, EP=8)
gpt_oss_120b_sft_64gpu_h100_bf16_8k_recipe = _120B.row(
    "sft", 8192, 64, more_gpus("TP, PP and EP", 32, 64), 43, PP=4, EP=8
)
gpt_oss_120b_sft_64gpu_h100_bf16_32k_recipe = _120B.row("sft", 32768, 64, SAME_TP_PP_EP, 43, PP=4, CP=4, EP=8)
gpt_oss_120b_sft_64gpu_h100_bf16_128k_recipe = _120B.row("sft", 131072, 64, SAME_TP_PP_EP, 43, PP=4, CP=8, EP=8)
gpt_oss_120b_peft_8gpu_h100_bf16_recipe = _120B.row("peft", 4096, 8, SAME, 31, EP=8)
gpt_oss_120b_peft_8gpu_h100_bf16_8k_recipe = _120B.row("peft", 8192, 8, SAME, 31, EP=8)
gpt_oss_120b_peft_8gpu_h100_bf16_32k_recipe = _120B.row("peft", 32768, 8, SAME_TP_PP_EP, 31, CP=4, EP=8)
gpt_oss_120b_peft_16gpu_h100_bf16_128k_recipe = _120B.row("peft", 131072, 16, more_ep(16, 8), 17, CP=8, EP=16)
