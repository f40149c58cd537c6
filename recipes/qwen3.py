"""Recipes for dense Qwen3: full SFT and LoRA in packs of 4096, 8192 and 32768 tokens.

Positions reach 40960. Beyond that a model needs YaRN, for which upstream has a base of the 0.6B only.

State per GPU, as the docstrings name it: parameters / (TP x PP) of 2 + 4 + 12 / (DP x CP) bytes for full SFT (bf16
weights, fp32 gradients, fp32 weights and both moments of Adam, spread over data-parallel ranks); of 2 bytes for LoRA.
Activations and logits come on top.
"""

from bridgepack.config.recipe.rows import Model, more_tp

_QWEN3_600M = Model(
    module=__name__,
    stem="qwen3_600m",
    title="Qwen3-0.6B",
    hub_id="Qwen/Qwen3-0.6B",
    full="qwen3_600m_sft_1gpu_h100_bf16_config",
    lora="qwen3_600m_peft_1gpu_h100_bf16_config",
)
_QWEN3_1P7B = Model(
    module=__name__,
    stem="qwen3_1p7b",
    title="Qwen3-1.7B",
    hub_id="Qwen/Qwen3-1.7B",
    full="qwen3_1p7b_sft_1gpu_h100_bf16_config",
    lora="qwen3_1p7b_peft_1gpu_h100_bf16_config",
)
_QWEN3_4B = Model(
    module=__name__,
    stem="qwen3_4b",
    title="Qwen3-4B",
    hub_id="Qwen/Qwen3-4B",
    full="qwen3_4b_sft_2gpu_h100_bf16_config",
    lora="qwen3_4b_peft_1gpu_h100_bf16_config",
)
_QWEN3_8B = Model(
    module=__name__,
    stem="qwen3_8b",
    title="Qwen3-8B",
    hub_id="Qwen/Qwen3-8B",
    full="qwen3_8b_sft_4gpu_h100_bf16_config",
    lora="qwen3_8b_peft_1gpu_h100_bf16_config",
)
_QWEN3_14B = Model(
    module=__name__,
    stem="qwen3_14b",
    title="Qwen3-14B",
    hub_id="Qwen/Qwen3-14B",
    full="qwen3_14b_sft_8gpu_h100_bf16_config",
    lora="qwen3_14b_peft_1gpu_h100_bf16_config",
)
_QWEN3_32B = Model(
    module=__name__,
    stem="qwen3_32b",
    title="Qwen3-32B",
    hub_id="Qwen/Qwen3-32B",
    full="qwen3_32b_sft_16gpu_h100_bf16_config",
    lora="qwen3_32b_peft_1gpu_h100_bf16_config",
)

qwen3_600m_sft_1gpu_h100_bf16_recipe = _QWEN3_600M.row("sft", 4096, 1, "Upstream's topology.", state_gib=10)
qwen3_600m_sft_1gpu_h100_bf16_8k_recipe = _QWEN3_600M.row("sft", 8192, 1, "Upstream's topology.", state_gib=10)
qwen3_600m_sft_4gpu_h100_bf16_32k_recipe = _QWEN3_600M.row("sft", 32768, 4, "Upstream's TP and PP.", state_gib=5, CP=4)
qwen3_600m_sft_8gpu_h100_bf16_yarn_128k_recipe = _QWEN3_600M.row(
    "sft",
    131072,
    8,
    "Upstream's topology.",
    variant="yarn",
    state_gib=4,
    recompute="full",
    base="qwen3_600m_sft_8gpu_h100_bf16_yarn_128k_config",
    CP=8,
)
qwen3_600m_peft_1gpu_h100_bf16_recipe = _QWEN3_600M.row("peft", 4096, 1, "Upstream's topology.", state_gib=1)
qwen3_600m_peft_1gpu_h100_bf16_8k_recipe = _QWEN3_600M.row("peft", 8192, 1, "Upstream's topology.", state_gib=1)
qwen3_600m_peft_4gpu_h100_bf16_32k_recipe = _QWEN3_600M.row(
    "peft", 32768, 4, "Upstream's TP and PP.", state_gib=1, CP=4
)

qwen3_1p7b_sft_1gpu_h100_bf16_recipe = _QWEN3_1P7B.row("sft", 4096, 1, "Upstream's topology.", state_gib=29)
qwen3_1p7b_sft_1gpu_h100_bf16_8k_recipe = _QWEN3_1P7B.row("sft", 8192, 1, "Upstream's topology.", state_gib=29)
qwen3_1p7b_sft_4gpu_h100_bf16_32k_recipe = _QWEN3_1P7B.row("sft", 32768, 4, "Upstream's TP and PP.", state_gib=14, CP=4)
qwen3_1p7b_peft_1gpu_h100_bf16_recipe = _QWEN3_1P7B.row("peft", 4096, 1, "Upstream's topology.", state_gib=3)
qwen3_1p7b_peft_1gpu_h100_bf16_8k_recipe = _QWEN3_1P7B.row("peft", 8192, 1, "Upstream's topology.", state_gib=3)
qwen3_1p7b_peft_4gpu_h100_bf16_32k_recipe = _QWEN3_1P7B.row(
    "peft", 32768, 4, "Upstream's TP and PP.", state_gib=3, CP=4
)

qwen3_4b_sft_2gpu_h100_bf16_recipe = _QWEN3_4B.row("sft", 4096, 2, "Upstream's topology.", state_gib=34, TP=2)
qwen3_4b_sft_2gpu_h100_bf16_8k_recipe = _QWEN3_4B.row("sft", 8192, 2, "Upstream's topology.", state_gib=34, TP=2)
qwen3_4b_sft_8gpu_h100_bf16_32k_recipe = _QWEN3_4B.row(
    "sft", 32768, 8, "Upstream's TP and PP.", state_gib=17, TP=2, CP=4
)
qwen3_4b_peft_1gpu_h100_bf16_recipe = _QWEN3_4B.row("peft", 4096, 1, "Upstream's topology.", state_gib=7)
qwen3_4b_peft_1gpu_h100_bf16_8k_recipe = _QWEN3_4B.row("peft", 8192, 1, "Upstream's topology.", state_gib=7)
qwen3_4b_peft_4gpu_h100_bf16_32k_recipe = _QWEN3_4B.row("peft", 32768, 4, "Upstream's TP and PP.", state_gib=7, CP=4)

qwen3_8b_sft_4gpu_h100_bf16_recipe = _QWEN3_8B.row("sft", 4096, 4, "Upstream's topology.", state_gib=34, TP=4)
qwen3_8b_sft_4gpu_h100_bf16_8k_recipe = _QWEN3_8B.row("sft", 8192, 4, "Upstream's topology.", state_gib=34, TP=4)
qwen3_8b_sft_8gpu_h100_bf16_32k_recipe = _QWEN3_8B.row(
    "sft", 32768, 8, "Upstream's topology.", state_gib=23, base="qwen3_8b_sft_8gpu_h100_bf16_32k_config", TP=4, CP=2
)
qwen3_8b_peft_1gpu_h100_bf16_recipe = _QWEN3_8B.row("peft", 4096, 1, "Upstream's topology.", state_gib=15)
qwen3_8b_peft_2gpu_h100_bf16_8k_recipe = _QWEN3_8B.row("peft", 8192, 2, more_tp(2, 1), state_gib=8, TP=2)
qwen3_8b_peft_8gpu_h100_bf16_32k_recipe = _QWEN3_8B.row("peft", 32768, 8, more_tp(2, 1), state_gib=8, TP=2, CP=4)

qwen3_14b_sft_8gpu_h100_bf16_recipe = _QWEN3_14B.row("sft", 4096, 8, "Upstream's topology.", state_gib=31, TP=8)
qwen3_14b_sft_8gpu_h100_bf16_8k_recipe = _QWEN3_14B.row("sft", 8192, 8, "Upstream's topology.", state_gib=31, TP=8)
qwen3_14b_sft_16gpu_h100_bf16_32k_recipe = _QWEN3_14B.row(
    "sft", 32768, 16, "Upstream's TP and PP.", state_gib=21, TP=8, CP=2
)
qwen3_14b_peft_2gpu_h100_bf16_recipe = _QWEN3_14B.row("peft", 4096, 2, more_tp(2, 1), state_gib=14, TP=2)
qwen3_14b_peft_2gpu_h100_bf16_8k_recipe = _QWEN3_14B.row("peft", 8192, 2, more_tp(2, 1), state_gib=14, TP=2)
qwen3_14b_peft_8gpu_h100_bf16_32k_recipe = _QWEN3_14B.row("peft", 32768, 8, more_tp(4, 1), state_gib=7, TP=4, CP=2)

qwen3_32b_sft_16gpu_h100_bf16_recipe = _QWEN3_32B.row(
    "sft", 4096, 16, "Upstream's topology.", state_gib=34, recompute="full", TP=8, PP=2
)
qwen3_32b_sft_16gpu_h100_bf16_8k_recipe = _QWEN3_32B.row(
    "sft", 8192, 16, "Upstream's topology.", state_gib=34, recompute="full", TP=8, PP=2
)
qwen3_32b_sft_32gpu_h100_bf16_32k_recipe = _QWEN3_32B.row(
    "sft", 32768, 32, "Upstream's TP and PP.", state_gib=23, recompute="full", TP=8, PP=2, CP=2
)
qwen3_32b_peft_2gpu_h100_bf16_recipe = _QWEN3_32B.row(
    "peft", 4096, 2, more_tp(2, 1), state_gib=31, recompute="full", TP=2
)
qwen3_32b_peft_4gpu_h100_bf16_8k_recipe = _QWEN3_32B.row(
    "peft", 8192, 4, more_tp(4, 1), state_gib=15, recompute="full", TP=4
)
qwen3_32b_peft_8gpu_h100_bf16_32k_recipe = _QWEN3_32B.row(
    "peft", 32768, 8, more_tp(8, 1), state_gib=8, recompute="full", TP=8
)
