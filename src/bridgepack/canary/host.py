"""A recipe on the installed host, for the canary: its ConfigContainer with a tiny model, and what follows from it."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridgepack.bridge.environment import environment_here
from bridgepack.bridge.shipped import import_host
from bridgepack.bridge.targets import quiet
from bridgepack.bridge.writing.write import to_bridge
from bridgepack.canary.families import family_at_hand, with_model_at_hand
from bridgepack.canary.records import HostFacts
from bridgepack.canary.tiny_model import cut_down, left_out, require_covered
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError

_DISTRIBUTIONS = ("megatron-bridge", "megatron-core", "torch", "transformer-engine")


def opened(request: Mapping[str, Any]) -> tuple[Any, HostFacts]:
    """Return the ConfigContainer of a recipe with its tiny model, and its facts.

    Raises:
        ConfigError: the host is not installed, the model cannot be loaded, or is not covered.
    """
    import_host("megatron.bridge")
    config, notes = _config(SFTRecipe.from_mapping(request["recipe"]), request)
    model = config.model
    require_covered(model)
    notes += tuple(left_out(config))
    per_token = bool(model.calculate_per_token_loss)
    is_split = bool(model.sequence_parallel)
    sizes = cut_down(model)
    specs = config.dataset.offline_packing_specs
    installed = environment_here().versions
    facts = HostFacts(
        provider=type(model).__name__,
        model=sizes,
        is_moe=bool(getattr(model, "num_moe_experts", None)),
        sequence_parallel=is_split,
        calculate_per_token_loss=per_token,
        pad_to_max_length=bool((config.dataset.dataset_kwargs or {}).get("pad_to_max_length", False)),
        pad_cu_seqlens=bool(specs is not None and specs.pad_cu_seqlens),
        notes=notes,
        versions={name: installed.get(name, "not installed") for name in _DISTRIBUTIONS},
        num_gpus=_num_gpus(),
        has_transformer_engine=importlib.util.find_spec("transformer_engine") is not None,
    )
    return config, facts


def _config(recipe: SFTRecipe, request: Mapping[str, Any]) -> tuple[Any, tuple[str, ...]]:
    """Return a recipe's ConfigContainer, with a model of its family where its own cannot be loaded here."""
    family = family_at_hand(recipe)
    reason = "the recipe names no model"
    if recipe.model is not None:
        try:
            with quiet():
                return to_bridge(recipe, artifact=request["artifact"]), ()
        except ConfigError as error:
            if family is None:
                raise
            reason = str(error).partition(": ")[0].strip()
    assert family is not None
    at_hand = with_model_at_hand(recipe, family, Path(request["folder"]) / "model")
    with quiet():
        config = to_bridge(at_hand, artifact=request["artifact"])
    return config, (f"the model is bridgepack's own small one of the family {family}: {reason}",)


def _num_gpus() -> int:
    import torch

    return int(torch.cuda.device_count())
