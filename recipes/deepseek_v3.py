"""Recipes for DeepSeek-V3: full SFT and LoRA in packs of 4096, 8192, 32768 and 131072 tokens.

Upstream has recipes for pretraining only, so the base is its common one around the model from the hub. The layers that
predict further tokens are left out: they ignore loss masks and boundaries of packs. Positions reach 163840. TP, PP and
EP of full SFT are those of upstream's pretraining on 256 GPUs; its steps are long enough to fill 8 pipeline stages.
"""

from typing import Any

from bridgepack.config.recipe.rows import Model

#: The host does not know the turn boundaries of this chat template.
_MARKERS = {
    "assistant_start": "<｜Assistant｜>",
    "assistant_end": "<｜end▁of▁sentence｜>",
    "other_role_starts": {"user": "<｜User｜>"},
}
_V3 = Model(
    module=__name__,
    stem="deepseek_v3",
    hub_id="deepseek-ai/DeepSeek-V3",
    lora_targets=("linear_q_down_proj", "linear_q_up_proj", "linear_kv_down_proj", "linear_kv_up_proj", "linear_proj"),
    recompute="full",
    step_factor=2,
    tokenizer={"loader": "tokenizer_json"},
    sections={"preprocessing": {"kind": "chat", "assistant_markers": _MARKERS}},
)
#: Layers of the last pipeline stage, the only one with fewer than the others.
_LAST_5, _LAST_13 = ({"model": {"num_layers_in_last_pipeline_stage": number}} for number in (5, 13))
_SFT: Any = {"overrides": _LAST_5, "TP": 2, "PP": 8, "EP": 32, "ETP": 1}

deepseek_v3_sft_256gpu_h100_bf16_recipe = _V3.row("sft", 4096, 256, "", 50, **_SFT)
deepseek_v3_sft_256gpu_h100_bf16_8k_recipe = _V3.row("sft", 8192, 256, "", 50, **_SFT)
deepseek_v3_sft_256gpu_h100_bf16_32k_recipe = _V3.row("sft", 32768, 256, "", 50, CP=4, **_SFT)
deepseek_v3_sft_256gpu_h100_bf16_128k_recipe = _V3.row("sft", 131072, 256, "", 50, CP=16, **_SFT)
deepseek_v3_peft_32gpu_h100_bf16_recipe = _V3.row("peft", 4096, 32, "", 46, overrides=_LAST_13, PP=4, EP=8)
deepseek_v3_peft_32gpu_h100_bf16_8k_recipe = _V3.row("peft", 8192, 32, "", 46, overrides=_LAST_13, PP=4, EP=8)
deepseek_v3_peft_64gpu_h100_bf16_32k_recipe = _V3.row("peft", 32768, 64, "", 23, overrides=_LAST_5, PP=8, CP=4, EP=8)
deepseek_v3_peft_128gpu_h100_bf16_128k_recipe = _V3.row(
    "peft", 131072, 128, "", 14, overrides=_LAST_5, PP=8, CP=16, EP=16
)
