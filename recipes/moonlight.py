"""Recipes for Moonlight 16B-A3B: full SFT and LoRA in packs of 4096 and 8192 tokens, which is its longest.

LoRA adapts the projections of latent attention: there is no linear_qkv. The tokenizer is Python code of its
repository; read it before you build.
"""

from bridgepack.config.recipe.rows import SAME, Model

_16B = Model(
    module=__name__,
    stem="moonlight_16b",
    title="Moonlight 16B-A3B",
    hub_id="moonshotai/Moonlight-16B-A3B-Instruct",
    full_gpus=8,
    lora_gpus=2,
    lora_targets=("linear_q_proj", "linear_kv_down_proj", "linear_kv_up_proj", "linear_proj"),
    tokenizer={"trust_remote_code": True},
)

moonlight_16b_sft_8gpu_h100_bf16_recipe = _16B.row("sft", 4096, 8, SAME, 33, TP=4, PP=2, EP=4, ETP=1)
moonlight_16b_sft_8gpu_h100_bf16_8k_recipe = _16B.row(
    "sft", 8192, 8, SAME, 37, base="moonlight_16b_sft_8gpu_h100_bf16_8k_config", TP=2, CP=2, EP=8, ETP=1
)
moonlight_16b_peft_2gpu_h100_bf16_recipe = _16B.row("peft", 4096, 2, SAME, 16, EP=2)
moonlight_16b_peft_4gpu_h100_bf16_8k_recipe = _16B.row(
    "peft", 8192, 4, SAME, 10, base="moonlight_16b_peft_4gpu_h100_bf16_config", EP=4
)
