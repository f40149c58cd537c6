"""Recipes for Qwen2.5: full SFT and LoRA in packs of 4096, 8192, 32768 and 131072 tokens.

Positions of the base models reach 131072; those of the Instruct models 32768, and further with YaRN only.

State per GPU, as the docstrings name it: parameters / (TP x PP) of 2 + 4 + 12 / (DP x CP) bytes for full SFT (bf16
weights, fp32 gradients, fp32 weights and both moments of Adam, spread over data-parallel ranks); of 2 bytes for LoRA.
Activations and logits come on top.
"""

from bridgepack.config.recipe.rows import Model, more_gpus, more_tp

_QWEN25_7B = Model(
    module=__name__,
    stem="qwen25_7b",
    title="Qwen2.5-7B",
    hub_id="Qwen/Qwen2.5-7B",
    full="qwen25_7b_sft_2gpu_h100_bf16_config",
    lora="qwen25_7b_peft_1gpu_h100_bf16_config",
)
_QWEN25_72B = Model(
    module=__name__,
    stem="qwen25_72b",
    title="Qwen2.5-72B",
    hub_id="Qwen/Qwen2.5-72B",
    full="qwen25_72b_sft_32gpu_h100_bf16_config",
    lora="qwen25_72b_peft_8gpu_h100_bf16_config",
)

qwen25_7b_sft_4gpu_h100_bf16_recipe = _QWEN25_7B.row("sft", 4096, 4, more_gpus("TP and PP", 2, 64), state_gib=43, TP=2)
qwen25_7b_sft_8gpu_h100_bf16_8k_recipe = _QWEN25_7B.row(
    "sft", 8192, 8, more_gpus("TP and PP", 2, 64), state_gib=32, TP=2
)
qwen25_7b_sft_8gpu_h100_bf16_32k_recipe = _QWEN25_7B.row("sft", 32768, 8, more_tp(4, 2), state_gib=21, TP=4, CP=2)
qwen25_7b_sft_16gpu_h100_bf16_128k_recipe = _QWEN25_7B.row(
    "sft", 131072, 16, more_tp(4, 2), state_gib=16, recompute="full", TP=4, CP=4
)
qwen25_7b_peft_1gpu_h100_bf16_recipe = _QWEN25_7B.row("peft", 4096, 1, "Upstream's topology.", state_gib=14)
qwen25_7b_peft_2gpu_h100_bf16_8k_recipe = _QWEN25_7B.row("peft", 8192, 2, more_tp(2, 1), state_gib=7, TP=2)
qwen25_7b_peft_8gpu_h100_bf16_32k_recipe = _QWEN25_7B.row("peft", 32768, 8, more_tp(2, 1), state_gib=7, TP=2, CP=4)
qwen25_7b_peft_8gpu_h100_bf16_128k_recipe = _QWEN25_7B.row(
    "peft", 131072, 8, more_tp(2, 1), state_gib=7, recompute="full", TP=2, CP=4
)

qwen25_72b_sft_32gpu_h100_bf16_recipe = _QWEN25_72B.row(
    "sft", 4096, 32, "Upstream's topology.", state_gib=38, TP=8, PP=4
)
qwen25_72b_sft_32gpu_h100_bf16_8k_recipe = _QWEN25_72B.row(
    "sft", 8192, 32, "Upstream's topology.", state_gib=38, TP=8, PP=4
)
qwen25_72b_sft_64gpu_h100_bf16_32k_recipe = _QWEN25_72B.row(
    "sft", 32768, 64, "Upstream's TP and PP.", state_gib=25, recompute="full", TP=8, PP=4, CP=2
)
qwen25_72b_sft_128gpu_h100_bf16_128k_recipe = _QWEN25_72B.row(
    "sft", 131072, 128, "Upstream's TP and PP.", state_gib=19, recompute="full", TP=8, PP=4, CP=4
)
qwen25_72b_peft_8gpu_h100_bf16_recipe = _QWEN25_72B.row("peft", 4096, 8, "Upstream's topology.", state_gib=17, TP=8)
qwen25_72b_peft_8gpu_h100_bf16_8k_recipe = _QWEN25_72B.row("peft", 8192, 8, "Upstream's topology.", state_gib=17, TP=8)
qwen25_72b_peft_16gpu_h100_bf16_32k_recipe = _QWEN25_72B.row(
    "peft", 32768, 16, "Upstream's TP and PP.", state_gib=17, recompute="full", TP=8, CP=2
)
qwen25_72b_peft_32gpu_h100_bf16_128k_recipe = _QWEN25_72B.row(
    "peft", 131072, 32, "Upstream's TP and PP.", state_gib=17, recompute="full", TP=8, CP=4
)
