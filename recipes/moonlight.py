"""Recipes for Moonlight 16B-A3B: full SFT and LoRA in packs of 4096 and 8192 tokens, which is its longest.

LoRA adapts the projections of latent attention: there is no linear_qkv. The tokenizer is Python code of its
repository; read it before you build.

State per GPU, as the docstrings name it: parameters / (TP x PP) of 2 + 4 + 12 / (DP x CP) bytes for full SFT (bf16
weights, fp32 gradients, fp32 weights and both moments of Adam, spread over data-parallel ranks), and parameters of
experts / (EP x PP) of 2 + 4 + 12 / (GPUs / EP / PP) bytes; of 2 bytes for LoRA. Activations and logits come on top.
"""

from bridgepack.config.recipe.rows import Model

_MOONLIGHT = Model(
    module=__name__,
    stem="moonlight_16b",
    title="Moonlight 16B-A3B",
    hub_id="moonshotai/Moonlight-16B-A3B-Instruct",
    full="moonlight_16b_sft_8gpu_h100_bf16_config",
    lora="moonlight_16b_peft_2gpu_h100_bf16_config",
    lora_targets=("linear_q_proj", "linear_kv_down_proj", "linear_kv_up_proj", "linear_proj"),
    tokenizer={"trust_remote_code": True},
)

moonlight_16b_sft_8gpu_h100_bf16_recipe = _MOONLIGHT.row(
    "sft", 4096, 8, "Upstream's topology.", state_gib=33, TP=4, PP=2, EP=4, ETP=1
)
moonlight_16b_sft_8gpu_h100_bf16_8k_recipe = _MOONLIGHT.row(
    "sft",
    8192,
    8,
    "Upstream's topology.",
    state_gib=37,
    base="moonlight_16b_sft_8gpu_h100_bf16_8k_config",
    TP=2,
    CP=2,
    EP=8,
    ETP=1,
)
moonlight_16b_peft_2gpu_h100_bf16_recipe = _MOONLIGHT.row("peft", 4096, 2, "Upstream's topology.", state_gib=16, EP=2)
moonlight_16b_peft_4gpu_h100_bf16_8k_recipe = _MOONLIGHT.row(
    "peft", 8192, 4, "Upstream's topology.", state_gib=10, base="moonlight_16b_peft_4gpu_h100_bf16_config", EP=4
)
