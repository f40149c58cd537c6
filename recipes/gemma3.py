"""Recipes for Gemma 3 1B, the text model: full SFT and LoRA in packs of 4096, 8192 and 32768 tokens.

Positions reach 32768. Windowed attention rules out the ring of context parallelism, and one key-value head rules out
all-to-all, so 32768 tokens are spread by tensor parallelism: 262144 logits a token need it. The larger Gemma 3 models
are vision-language ones, whose recipes upstream trains unpacked.
"""

from bridgepack.config.recipe.rows import SAME, Model, more_tp

_1B = Model(
    module=__name__, stem="gemma3_1b", title="Gemma 3 1B", hub_id="google/gemma-3-1b-it", full_gpus=1, lora_gpus=1
)

gemma3_1b_sft_1gpu_h100_bf16_recipe = _1B.row("sft", 4096, 1, SAME, 17)
gemma3_1b_sft_1gpu_h100_bf16_8k_recipe = _1B.row("sft", 8192, 1, SAME, 17)
gemma3_1b_sft_4gpu_h100_bf16_32k_recipe = _1B.row("sft", 32768, 4, more_tp(4, 1), 4, TP=4)
gemma3_1b_peft_1gpu_h100_bf16_recipe = _1B.row("peft", 4096, 1, SAME, 2)
gemma3_1b_peft_1gpu_h100_bf16_8k_recipe = _1B.row("peft", 8192, 1, SAME, 2)
gemma3_1b_peft_4gpu_h100_bf16_32k_recipe = _1B.row("peft", 32768, 4, more_tp(4, 1), 0.5, TP=4)
