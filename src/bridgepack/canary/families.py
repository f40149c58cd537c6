"""Small models of well-known families, for recipes that name no model, or one whose config.json is not here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.rules.engine.families import family_named

#: Where a recipe names no model.
DEFAULT_FAMILY = "llama"
#: The provider is made of these and cut down afterwards, so that any topology of a recipe fits them.
_DECODER: Mapping[str, Any] = {
    "num_hidden_layers": 240,
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_attention_heads": 64,
    "num_key_value_heads": 32,
    "head_dim": 16,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 1 << 20,
    "initializer_range": 0.02,
    "vocab_size": 1024,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "attention_bias": False,
}
_CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama"},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "use_sliding_window": False},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"},
    "qwen3_moe": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_experts": 64,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 256,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "router_aux_loss_coef": 0.001,
    },
}


def family_at_hand(recipe: SFTRecipe) -> str | None:
    """Return the family of a recipe's model where a small one of it is at hand."""
    if recipe.model is None:
        return DEFAULT_FAMILY
    family = family_named(recipe.model.name)
    return family if family in _CONFIGS else None


def with_model_at_hand(recipe: SFTRecipe, family: str, folder: Path) -> SFTRecipe:
    """Return a recipe with a small model of a family, whose config.json is written to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**_DECODER, **_CONFIGS[family]}))
    return recipe.override({"model": {"name": str(folder)}})
