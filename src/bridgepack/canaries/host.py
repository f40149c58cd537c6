"""A recipe on the installed host, for the canary: its ConfigContainer with a tiny model, and its facts."""

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridgepack.bridge.environment import environment_here
from bridgepack.bridge.imports import import_host
from bridgepack.bridge.targets import quiet
from bridgepack.bridge.writing.write import to_bridge
from bridgepack.canaries.records import HostFacts
from bridgepack.canaries.tiny_model import cut_down, cut_down_adapters, left_out, require_covered
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.rules.judging.families import family_named

#: For a recipe without a model.
_DEFAULT_FAMILY = "llama"
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
_DISTRIBUTIONS = ("megatron-bridge", "megatron-core", "torch", "transformer-engine")


def open_container(request: Mapping[str, Any]) -> tuple[Any, HostFacts]:
    """Return the ConfigContainer of a recipe with its tiny model, and its facts.

    Raises:
        ConfigError: the host is not installed, or the model cannot be loaded or is not supported.
    """
    version = import_host().__version__
    import torch

    config, notes = _config(SFTRecipe.from_mapping(request["recipe"]), request)
    model = config.model
    require_covered(model)
    notes += tuple(left_out(config))
    is_split = bool(model.sequence_parallel)
    sizes = {**cut_down(model, has_adapters=config.peft is not None), **cut_down_adapters(config)}
    specs = config.dataset.offline_packing_specs
    versions = environment_here().versions
    facts = HostFacts(
        provider=type(model).__name__,
        model=sizes,
        is_moe=bool(getattr(model, "num_moe_experts", None)),
        sequence_parallel=is_split,
        pad_to_max_length=bool((config.dataset.dataset_kwargs or {}).get("pad_to_max_length", False)),
        pad_cu_seqlens=bool(specs is not None and specs.pad_cu_seqlens),
        notes=notes,
        versions={name: versions.get(name, "not installed") for name in _DISTRIBUTIONS},
        bridge_version=version,
        num_gpus=torch.cuda.device_count(),
        has_transformer_engine=importlib.util.find_spec("transformer_engine") is not None,
    )
    return config, facts


def _config(recipe: SFTRecipe, request: Mapping[str, Any]) -> tuple[Any, tuple[str, ...]]:
    """Return a recipe's ConfigContainer, with a model of its family where its own cannot be loaded here."""
    recipe = recipe.override({"artifact": request["artifact"]})  # in the place of packs that overrides name
    family, reason = _DEFAULT_FAMILY, "the recipe names no model"
    if recipe.model is not None:
        family = family_named(recipe.model.name) or ""
        try:
            with quiet():
                return to_bridge(recipe), ()
        except ConfigError as error:
            if family not in _CONFIGS:
                raise
            reason = str(error).partition(": ")[0].strip()
    folder = Path(request["folder"]) / "model"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**_DECODER, **_CONFIGS[family]}))
    at_hand = recipe.override({"model": {"name": str(folder)}})
    with quiet():
        config = to_bridge(at_hand)
    return config, (f"the model is bridgepack's own small model of the family {family}: {reason}",)
