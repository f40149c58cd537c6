"""Recipes for gpt-oss: full SFT and LoRA in packs of 4096, 8192, 32768 and 131072 tokens.

Attention has sinks and windows, so context parallelism must be all-to-all (no ring) and divide the 8 key-value heads;
over packed rows it wants cuDNN 9.18. YaRN's positions reach 131072.

State per GPU, as the docstrings name it: parameters / (TP x PP) of 2 + 4 + 12 / (DP x CP) bytes for full SFT (bf16
weights, fp32 gradients, fp32 weights and both moments of Adam, spread over data-parallel ranks), and parameters of
experts / (EP x PP) of 2 + 4 + 12 / (GPUs / EP / PP) bytes; of 2 bytes for LoRA. Activations and logits come on top.
"""

from bridgepack.config.recipe.rows import Model, more_ep, more_gpus

_GPT_OSS_20B = Model(
    module=__name__,
    stem="gpt_oss_20b",
    title="gpt-oss 20B",
    hub_id="openai/gpt-oss-20b",
    full="gpt_oss_20b_sft_8gpu_h100_bf16_config",
    lora="gpt_oss_20b_peft_1gpu_h100_bf16_config",
    cp_comm_type="a2a",
)
_GPT_OSS_120B = Model(
    module=__name__,
    stem="gpt_oss_120b",
    title="gpt-oss 120B",
    hub_id="openai/gpt-oss-120b",
    full="gpt_oss_120b_sft_32gpu_h100_bf16_config",
    lora="gpt_oss_120b_peft_8gpu_h100_bf16_config",
    cp_comm_type="a2a",
)

gpt_oss_20b_sft_8gpu_h100_bf16_recipe = _GPT_OSS_20B.row(
    "sft", 4096, 8, "Upstream's topology.", state_gib=53, recompute="full", EP=8
)
gpt_oss_20b_sft_16gpu_h100_bf16_8k_recipe = _GPT_OSS_20B.row(
    "sft", 8192, 16, more_gpus("TP, PP and EP", 8, 53), state_gib=38, recompute="full", EP=8
)
gpt_oss_20b_sft_16gpu_h100_bf16_32k_recipe = _GPT_OSS_20B.row(
    "sft", 32768, 16, "Upstream's TP, PP and EP.", state_gib=38, recompute="full", CP=4, EP=8
)
gpt_oss_20b_sft_32gpu_h100_bf16_128k_recipe = _GPT_OSS_20B.row(
    "sft", 131072, 32, "Upstream's TP, PP and EP.", state_gib=31, recompute="full", CP=8, EP=8
)
gpt_oss_20b_peft_1gpu_h100_bf16_recipe = _GPT_OSS_20B.row("peft", 4096, 1, "Upstream's topology.", state_gib=39)
gpt_oss_20b_peft_1gpu_h100_bf16_8k_recipe = _GPT_OSS_20B.row(
    "peft", 8192, 1, "Upstream's topology.", state_gib=39, recompute="full"
)
gpt_oss_20b_peft_4gpu_h100_bf16_32k_recipe = _GPT_OSS_20B.row(
    "peft", 32768, 4, more_ep(4, 1), state_gib=12, recompute="full", CP=4, EP=4
)
gpt_oss_20b_peft_8gpu_h100_bf16_128k_recipe = _GPT_OSS_20B.row(
    "peft", 131072, 8, more_ep(8, 1), state_gib=8, recompute="full", CP=8, EP=8
)

gpt_oss_120b_sft_64gpu_h100_bf16_recipe = _GPT_OSS_120B.row(
    "sft", 4096, 64, more_gpus("TP, PP and EP", 32, 64), state_gib=43, recompute="full", PP=4, EP=8
)
gpt_oss_120b_sft_64gpu_h100_bf16_8k_recipe = _GPT_OSS_120B.row(
    "sft", 8192, 64, more_gpus("TP, PP and EP", 32, 64), state_gib=43, recompute="full", PP=4, EP=8
)
gpt_oss_120b_sft_64gpu_h100_bf16_32k_recipe = _GPT_OSS_120B.row(
    "sft", 32768, 64, "Upstream's TP, PP and EP.", state_gib=43, recompute="full", PP=4, CP=4, EP=8
)
gpt_oss_120b_sft_64gpu_h100_bf16_128k_recipe = _GPT_OSS_120B.row(
    "sft", 131072, 64, "Upstream's TP, PP and EP.", state_gib=43, recompute="full", PP=4, CP=8, EP=8
)
gpt_oss_120b_peft_8gpu_h100_bf16_recipe = _GPT_OSS_120B.row(
    "peft", 4096, 8, "Upstream's topology.", state_gib=31, recompute="full", EP=8
)
gpt_oss_120b_peft_8gpu_h100_bf16_8k_recipe = _GPT_OSS_120B.row(
    "peft", 8192, 8, "Upstream's topology.", state_gib=31, recompute="full", EP=8
)
gpt_oss_120b_peft_8gpu_h100_bf16_32k_recipe = _GPT_OSS_120B.row(
    "peft", 32768, 8, "Upstream's TP, PP and EP.", state_gib=31, recompute="full", CP=4, EP=8
)
gpt_oss_120b_peft_16gpu_h100_bf16_128k_recipe = _GPT_OSS_120B.row(
    "peft", 131072, 16, more_ep(16, 8), state_gib=17, recompute="full", CP=8, EP=16
)
