"""Recipes for Llama 3.1 and 3.2: full SFT and LoRA in packs of 4096, 8192, 32768 and 131072 tokens.

Tokenizers are those of the Instruct models, which have a chat template. Rotary positions reach 131072.
"""

from bridgepack.config.recipe.rows import SAME, SAME_TP_PP, Model, more_gpus, more_tp


def _model(version: str, size: str, full_gpus: int, lora_gpus: int) -> Model:
    return Model(
        module=__name__,
        stem=f"llama{version.replace('.', '')}_{size.lower()}",
        title=f"Llama {version} {size}",
        hub_id=f"meta-llama/Llama-{version}-{size}-Instruct",
        full_gpus=full_gpus,
        lora_gpus=lora_gpus,
    )


_1B, _3B = _model("3.2", "1B", 1, 1), _model("3.2", "3B", 1, 1)
_8B, _70B = _model("3.1", "8B", 2, 1), _model("3.1", "70B", 32, 8)

llama32_1b_sft_1gpu_h100_bf16_recipe = _1B.row("sft", 4096, 1, SAME, 21)
llama32_1b_sft_1gpu_h100_bf16_8k_recipe = _1B.row("sft", 8192, 1, SAME, 21)
llama32_1b_sft_4gpu_h100_bf16_32k_recipe = _1B.row("sft", 32768, 4, SAME_TP_PP, 10, CP=4)
llama32_1b_sft_8gpu_h100_bf16_128k_recipe = _1B.row("sft", 131072, 8, SAME_TP_PP, 9, recompute="full", CP=8)
llama32_1b_peft_1gpu_h100_bf16_recipe = _1B.row("peft", 4096, 1, SAME, 2)
llama32_1b_peft_1gpu_h100_bf16_8k_recipe = _1B.row("peft", 8192, 1, SAME, 2)
llama32_1b_peft_4gpu_h100_bf16_32k_recipe = _1B.row("peft", 32768, 4, SAME_TP_PP, 2, CP=4)
llama32_1b_peft_8gpu_h100_bf16_128k_recipe = _1B.row("peft", 131072, 8, SAME_TP_PP, 2, recompute="full", CP=8)

llama32_3b_sft_2gpu_h100_bf16_recipe = _3B.row("sft", 4096, 2, more_gpus("TP and PP", 1, 54), 36)
llama32_3b_sft_4gpu_h100_bf16_8k_recipe = _3B.row("sft", 8192, 4, more_gpus("TP and PP", 1, 54), 27)
llama32_3b_sft_8gpu_h100_bf16_32k_recipe = _3B.row("sft", 32768, 8, more_tp(2, 1), 13, TP=2, CP=4)
llama32_3b_sft_8gpu_h100_bf16_128k_recipe = _3B.row("sft", 131072, 8, more_tp(2, 1), 13, recompute="full", TP=2, CP=4)
llama32_3b_peft_1gpu_h100_bf16_recipe = _3B.row("peft", 4096, 1, SAME, 6)
llama32_3b_peft_1gpu_h100_bf16_8k_recipe = _3B.row("peft", 8192, 1, SAME, 6)
llama32_3b_peft_4gpu_h100_bf16_32k_recipe = _3B.row("peft", 32768, 4, SAME_TP_PP, 6, CP=4)
llama32_3b_peft_8gpu_h100_bf16_128k_recipe = _3B.row("peft", 131072, 8, SAME_TP_PP, 6, recompute="full", CP=8)

llama31_8b_sft_4gpu_h100_bf16_recipe = _8B.row("sft", 4096, 4, more_gpus("TP and PP", 2, 67), 45, TP=2)
llama31_8b_sft_8gpu_h100_bf16_8k_recipe = _8B.row("sft", 8192, 8, more_gpus("TP and PP", 2, 67), 34, TP=2)
llama31_8b_sft_8gpu_h100_bf16_32k_recipe = _8B.row("sft", 32768, 8, more_tp(4, 2), 22, TP=4, CP=2)
llama31_8b_sft_16gpu_h100_bf16_128k_recipe = _8B.row("sft", 131072, 16, more_tp(4, 2), 17, recompute="full", TP=4, CP=4)
llama31_8b_peft_1gpu_h100_bf16_recipe = _8B.row("peft", 4096, 1, SAME, 15)
llama31_8b_peft_2gpu_h100_bf16_8k_recipe = _8B.row("peft", 8192, 2, more_tp(2, 1), 7, TP=2)
llama31_8b_peft_8gpu_h100_bf16_32k_recipe = _8B.row("peft", 32768, 8, more_tp(2, 1), 7, TP=2, CP=4)
llama31_8b_peft_8gpu_h100_bf16_128k_recipe = _8B.row("peft", 131072, 8, more_tp(2, 1), 7, recompute="full", TP=2, CP=4)

llama31_70b_sft_32gpu_h100_bf16_recipe = _70B.row("sft", 4096, 32, SAME, 37, TP=8, PP=4)
llama31_70b_sft_32gpu_h100_bf16_8k_recipe = _70B.row("sft", 8192, 32, SAME, 37, TP=8, PP=4)
llama31_70b_sft_64gpu_h100_bf16_32k_recipe = _70B.row(
    "sft", 32768, 64, SAME_TP_PP, 25, recompute="full", TP=8, PP=4, CP=2
)
llama31_70b_sft_128gpu_h100_bf16_128k_recipe = _70B.row(
    "sft", 131072, 128, SAME_TP_PP, 18, recompute="full", TP=8, PP=4, CP=4
)
llama31_70b_peft_8gpu_h100_bf16_recipe = _70B.row("peft", 4096, 8, SAME, 16, TP=8)
llama31_70b_peft_8gpu_h100_bf16_8k_recipe = _70B.row("peft", 8192, 8, SAME, 16, TP=8)
llama31_70b_peft_16gpu_h100_bf16_32k_recipe = _70B.row("peft", 32768, 16, SAME_TP_PP, 16, recompute="full", TP=8, CP=2)
llama31_70b_peft_32gpu_h100_bf16_128k_recipe = _70B.row(
    "peft", 131072, 32, SAME_TP_PP, 16, recompute="full", TP=8, CP=4
)
