"""Whether a model can be spread over GPUs as a recipe asks, where the host looks at it late or in words of its own."""

from __future__ import annotations

from typing import Any

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError


def check_topology(config: Any, recipe: SFTRecipe) -> None:
    """Raise where the topology splits what the model has not, or cannot split.

    Raises:
        ConfigError: naming the field.
    """
    size, model = recipe.parallelism.expert_model_parallel_size, type(config.model).__name__
    if size > 1 and not getattr(config.model, "num_moe_experts", None):
        raise ConfigError(
            f"parallelism.expert_model_parallel_size is {size}; allowed: 1, as this {model} has no experts. "
            "Set it to 1."
        )
    _check_stages(config.model)
    split = recipe.parallelism.expert_tensor_parallel_size
    if split is not None and split > 1 and has_biased_experts(config):
        raise ConfigError(
            f"parallelism.expert_tensor_parallel_size is {split}; allowed: 1, as the experts of this {model} have "
            "biases. Set it to 1."
        )


def has_biased_experts(base: Any) -> bool:
    """Say whether a model has experts with biases.

    Source: megatron/core/transformer/transformer_config.py of 0.19.2, "Bias in Moe is only supported when ETP==1".
    """
    return bool(getattr(base.model, "num_moe_experts", None)) and bool(getattr(base.model, "add_bias_linear", False))


def _check_stages(model: Any) -> None:
    """Raise where layers do not spread evenly over pipeline stages.

    Source: megatron/core/transformer/transformer_block.py of 0.19.2, get_num_layers_to_build; the host looks at it when
    it builds the model.
    """
    stages, chunks = model.pipeline_model_parallel_size, model.virtual_pipeline_model_parallel_size or 1
    is_laid_out = model.pipeline_model_parallel_layout is not None or getattr(model, "is_hybrid_model", False)
    if stages == 1 or is_laid_out:
        return
    uneven = (model.num_layers_in_first_pipeline_stage, model.num_layers_in_last_pipeline_stage)
    layers = model.num_layers + model.account_for_embedding_in_pipeline_split + model.account_for_loss_in_pipeline_split
    layers -= sum(size or 0 for size in uneven)
    middle = stages - sum(size is not None for size in uneven)
    if layers % max(middle * chunks, 1):
        raise ConfigError(
            f"parallelism.pipeline_model_parallel_size is {stages} with {chunks} chunks of layers on each; allowed: "
            f"sizes over which {model.num_layers} layers spread evenly. Choose one that divides them, or set "
            "bridge_overrides.model.pipeline_model_parallel_layout."
        )
