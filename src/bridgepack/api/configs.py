"""API functions that give Megatron-Bridge its configs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridgepack.api.targets import Recipe
from bridgepack.bridge.adopting.pack_for import PackedConfig
from bridgepack.bridge.adopting.pack_for import pack_for as pack_config
from bridgepack.bridge.forward_steps import forward_step_for as forward_step_for
from bridgepack.bridge.shipped import load_shipped
from bridgepack.bridge.targets import saying_places
from bridgepack.config.arguments import check_arguments
from bridgepack.config.load import load_recipe


@check_arguments
@saying_places
def to_bridge(recipe: Recipe, *, artifact: str | Path | None = None, overrides: Mapping[str, Any] | None = None) -> Any:
    """Return the ConfigContainer of a recipe, ready for Megatron-Bridge's `finetune(config, forward_step)`.

    Example: `config = bridgepack.to_bridge("recipes/mine.yaml", artifact="packed")`.

    Args:
        recipe: an SFTRecipe or its location, as for `build`.
        artifact: folder of the packs; by default the recipe's own, else `artifacts/NAME`.
        overrides: dotted path -> value.

    Raises:
        ConfigError: the model cannot be loaded here, or Megatron-Bridge has no such setting.
    """
    return load_recipe(recipe, overrides).to_bridge(artifact)


@check_arguments
def pack_for(config: Any, artifact: str | Path | None = None, *, world_size: int | None = None) -> PackedConfig:
    """Return a copy of a ConfigContainer corrected to train packs, with the changes and their reasons.

    Example: `config = bridgepack.pack_for(config, "packed").config`.

    Args:
        config: a ConfigContainer, or the name of a recipe of Megatron-Bridge, e.g. `bridge:qwen3_8b_sft_config`.
        artifact: folder of packs that the run will read.
        world_size: number of GPUs.

    Raises:
        ConfigError: the model does not support packs, or the data cannot be packed.
        ArtifactError: the folder is not an artifact.
    """
    config = load_shipped(config, field="config") if isinstance(config, str) else config
    return pack_config(config, artifact, world_size)
