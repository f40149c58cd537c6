"""Recipes for Qwen3 with experts: full SFT and LoRA in packs of 4096, 8192 and 32768 tokens.

Positions reach 40960. LoRA adapts attention alone, as upstream's own recipes: an adapter on experts would be one for
all of them.

State per GPU, as the docstrings name it: parameters / (TP x PP) of 2 + 4 + 12 / (DP x CP) bytes for full SFT (bf16
weights, fp32 gradients, fp32 weights and both moments of Adam, spread over data-parallel ranks), and parameters of
experts / (EP x PP) of 2 + 4 + 12 / (GPUs / EP / PP) bytes; of 2 bytes for LoRA. Activations and logits come on top.
"""

from bridgepack.config.recipe.rows import Model, more_ep

_QWEN3_30B_A3B = Model(
    module=__name__,
    stem="qwen3_30b_a3b",
    title="Qwen3-30B-A3B",
    hub_id="Qwen/Qwen3-30B-A3B",
    full="qwen3_30b_a3b_sft_16gpu_h100_bf16_config",
    lora="qwen3_30b_a3b_peft_4gpu_h100_bf16_config",
    lora_targets=("linear_qkv", "linear_proj"),
)
_QWEN3_235B_A22B = Model(
    module=__name__,
    stem="qwen3_235b_a22b",
    title="Qwen3-235B-A22B",
    hub_id="Qwen/Qwen3-235B-A22B",
    full="qwen3_235b_a22b_sft_64gpu_h100_bf16_config",
    lora="qwen3_235b_a22b_peft_16gpu_h100_bf16_config",
    lora_targets=("linear_qkv", "linear_proj"),
)

qwen3_30b_a3b_sft_16gpu_h100_bf16_recipe = _QWEN3_30B_A3B.row(
    "sft", 4096, 16, "Upstream's topology.", state_gib=40, recompute="full", EP=16
)
qwen3_30b_a3b_sft_16gpu_h100_bf16_8k_recipe = _QWEN3_30B_A3B.row(
    "sft", 8192, 16, "Upstream's topology.", state_gib=40, recompute="full", EP=16
)
qwen3_30b_a3b_sft_16gpu_h100_bf16_32k_recipe = _QWEN3_30B_A3B.row(
    "sft", 32768, 16, "Upstream's TP, PP and EP.", state_gib=40, recompute="full", CP=4, EP=16
)
qwen3_30b_a3b_peft_4gpu_h100_bf16_recipe = _QWEN3_30B_A3B.row(
    "peft", 4096, 4, "Upstream's topology.", state_gib=14, TP=4, EP=4, ETP=1
)
qwen3_30b_a3b_peft_4gpu_h100_bf16_8k_recipe = _QWEN3_30B_A3B.row(
    "peft", 8192, 4, "Upstream's topology.", state_gib=14, TP=4, EP=4, ETP=1
)
qwen3_30b_a3b_peft_8gpu_h100_bf16_32k_recipe = _QWEN3_30B_A3B.row(
    "peft", 32768, 8, more_ep(8, 4), state_gib=7, TP=4, CP=2, EP=8, ETP=1
)

qwen3_235b_a22b_sft_128gpu_h100_bf16_recipe = _QWEN3_235B_A22B.row(
    "sft", 4096, 128, more_ep(8, 4), state_gib=31, recompute="full", TP=4, PP=16, EP=8, ETP=1
)
qwen3_235b_a22b_sft_128gpu_h100_bf16_8k_recipe = _QWEN3_235B_A22B.row(
    "sft", 8192, 128, more_ep(8, 4), state_gib=31, recompute="full", TP=4, PP=16, EP=8, ETP=1
)
qwen3_235b_a22b_sft_128gpu_h100_bf16_32k_recipe = _QWEN3_235B_A22B.row(
    "sft", 32768, 128, more_ep(8, 4), state_gib=31, recompute="full", TP=4, PP=16, CP=2, EP=8, ETP=1
)
qwen3_235b_a22b_peft_16gpu_h100_bf16_recipe = _QWEN3_235B_A22B.row(
    "peft", 4096, 16, "Upstream's topology.", state_gib=27, TP=4, PP=4, EP=4, ETP=1
)
qwen3_235b_a22b_peft_16gpu_h100_bf16_8k_recipe = _QWEN3_235B_A22B.row(
    "peft", 8192, 16, "Upstream's topology.", state_gib=27, recompute="full", TP=4, PP=4, EP=4, ETP=1
)
qwen3_235b_a22b_peft_32gpu_h100_bf16_32k_recipe = _QWEN3_235B_A22B.row(
    "peft", 32768, 32, more_ep(8, 4), state_gib=14, recompute="full", TP=4, PP=4, CP=2, EP=8, ETP=1
)
