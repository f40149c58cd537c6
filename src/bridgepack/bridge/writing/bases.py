"""The ConfigContainer that a recipe starts from, and the topologies that it cannot take."""

from typing import Any

from bridgepack.bridge.inherited import has_biased_experts
from bridgepack.bridge.shipped import import_host, is_shipped_model, load_shipped
from bridgepack.config.errors import shown
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.recipe.training import AdapterMethod, ModelConfig
from bridgepack.errors import ConfigError

#: What AutoBridge raises where a model cannot be read or is of no family that it knows.
_MODEL_ERRORS = (OSError, RuntimeError, ValueError, TypeError, KeyError, ImportError, AttributeError)


def base_config(recipe: SFTRecipe) -> Any:
    """Return a new ConfigContainer to write settings into: a shipped recipe's, or the host's common one with a model.

    Raises:
        ConfigError: the recipe names no model, or one that cannot be loaded here.
    """
    if recipe.model is None:
        raise ConfigError(
            "model is missing; a ConfigContainer needs one. Set model.name to a recipe of Megatron-Bridge or to an id "
            "on the Hugging Face hub."
        )
    if is_shipped_model(recipe.model):
        config = load_shipped(recipe.model.name)
        if type(config.model).__module__.startswith("megatron.bridge.diffusion"):
            raise ConfigError(
                f"model.name is {shown(recipe.model.name)}, a {type(config.model).__name__}, which makes images or "
                "video; allowed: language models. Use another recipe."
            )
        return config
    common = import_host("megatron.bridge.recipes.common")
    config = common._peft_common() if isinstance(recipe.method, AdapterMethod) else common._sft_common()
    config.model = _provider(recipe.model)
    return config


def _provider(model: ModelConfig) -> Any:
    options: dict[str, Any] = {"trust_remote_code": True} if model.trust_remote_code else {}
    if model.revision is not None:
        options["revision"] = model.revision
    bridge = import_host("megatron.bridge").AutoBridge
    try:
        return bridge.from_hf_pretrained(model.name, **options).to_megatron_provider(load_weights=False)
    except _MODEL_ERRORS as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"model.name is {shown(model.name)}, which Megatron-Bridge cannot load here: {type(error).__name__}: "
            f"{reason}. Allowed: a folder, or an id in the Hugging Face cache or on the hub, of a model that "
            "AutoBridge knows. Fetch its config.json, or name a recipe of Megatron-Bridge."
        ) from error


def check_topology(config: Any, recipe: SFTRecipe) -> None:
    """Raise where the topology splits what the model has not or cannot split, which the host says late or not clearly.

    Raises:
        ConfigError: naming the field.
    """
    topology, model = recipe.parallelism, type(config.model).__name__
    if topology.expert_model_parallel_size > 1 and not getattr(config.model, "num_moe_experts", None):
        raise ConfigError(
            f"parallelism.expert_model_parallel_size is {topology.expert_model_parallel_size}; allowed: 1, as this "
            f"{model} has no experts. Set it to 1."
        )
    _check_stages(config.model)
    if (topology.expert_tensor_parallel_size or 1) > 1 and has_biased_experts(config):
        raise ConfigError(
            f"parallelism.expert_tensor_parallel_size is {topology.expert_tensor_parallel_size}; allowed: 1, as the "
            f"experts of this {model} have biases. Set it to 1."
        )


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
