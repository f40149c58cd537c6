"""Recipes for Nemotron-3 Nano: full SFT and LoRA in packs of 4096, 8192, 32768 and 131072 tokens.

Mamba, attention and experts in turn; positions reach 262144. LoRA adapts the Mamba projections too.
"""

from bridgepack.config.recipe.rows import SAME, SAME_TP_PP_EP, Model, more_gpus

_NANO = Model(
    module=__name__,
    stem="nemotron_3_nano",
    title="Nemotron-3 Nano 30B-A3B",
    hub_id="nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    full_gpus=8,
    lora_gpus=8,
    lora_targets=("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2", "in_proj", "out_proj"),
)
_MORE_GPUS = more_gpus("TP, PP and EP", 8, 77)

nemotron_3_nano_sft_16gpu_h100_bf16_recipe = _NANO.row("sft", 4096, 16, _MORE_GPUS, 55, recompute="full", EP=8)
nemotron_3_nano_sft_16gpu_h100_bf16_8k_recipe = _NANO.row("sft", 8192, 16, _MORE_GPUS, 55, recompute="full", EP=8)
nemotron_3_nano_sft_16gpu_h100_bf16_32k_recipe = _NANO.row(
    "sft", 32768, 16, SAME_TP_PP_EP, 55, recompute="full", CP=4, EP=8
)
nemotron_3_nano_sft_32gpu_h100_bf16_128k_recipe = _NANO.row(
    "sft", 131072, 32, SAME_TP_PP_EP, 44, recompute="full", CP=8, EP=8
)
nemotron_3_nano_peft_8gpu_h100_bf16_recipe = _NANO.row("peft", 4096, 8, SAME, 11, EP=8)
nemotron_3_nano_peft_8gpu_h100_bf16_8k_recipe = _NANO.row("peft", 8192, 8, SAME, 11, EP=8)
nemotron_3_nano_peft_8gpu_h100_bf16_32k_recipe = _NANO.row("peft", 32768, 8, SAME_TP_PP_EP, 11, CP=4, EP=8)
nemotron_3_nano_peft_8gpu_h100_bf16_128k_recipe = _NANO.row(
    "peft",
    131072,
    8,
    f"{SAME_TP_PP_EP} Experts are recomputed: Megatron-Bridge 0.7 trains no adapters in whole layers that are.",
    11,
    recompute="selective",
    overrides={"model": {"recompute_modules": ["moe"]}},
    CP=8,
    EP=8,
)
