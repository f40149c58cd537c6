"""The ConfigContainer that a recipe starts from, and what it brings that topology or packed rows cannot take."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bridgepack.bridge.shipped import PREFIX, import_host, load_shipped
from bridgepack.bridge.wiring import Setting, derived
from bridgepack.bridge.writing.host_fields import value_at
from bridgepack.config.errors import shown
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.recipe.training import AdapterMethod, ModelConfig
from bridgepack.errors import ConfigError

#: What AutoBridge raises where a model cannot be read or is of no family that it knows.
_MODEL_ERRORS = (OSError, RuntimeError, ValueError, TypeError, KeyError, ImportError, AttributeError)
_MTP = "model.mtp_num_layers"
_QUANTIZED_ROUTERS = ("model.moe_router_padding_for_quantization", "model.moe_router_padding_for_fp8")
_GRAPH_SCOPE = "model.cuda_graph_scope"
_LAYOUT = "model.pipeline_model_parallel_layout"
_SPLITS = (
    "model.num_layers_in_first_pipeline_stage",
    "model.num_layers_in_last_pipeline_stage",
    "model.account_for_embedding_in_pipeline_split",
    "model.account_for_loss_in_pipeline_split",
)
_NO_MTP = "the layers that predict further tokens take neither loss masks nor boundaries of packed sequences"


def is_shipped_model(model: ModelConfig) -> bool:
    """Say whether a model is named by a recipe of Megatron-Bridge, not by a hub id or a folder."""
    return model.name.startswith(PREFIX) or ("/" not in model.name and not Path(model.name).is_dir())


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


def inherited_settings(base: Any, recipe: SFTRecipe) -> Iterator[Setting]:
    """Yield the settings that undo what a base, a ConfigContainer, cannot bring along to a recipe."""
    moved = list(_pipeline_settings(base, recipe))
    yield from moved
    if recipe.packing.mode != "none":
        yield from (one for one in prediction_settings(base) if one.path not in {setting.path for setting in moved})
    if recipe.cuda_graphs.implementation != "none" and value_at(base, _GRAPH_SCOPE):
        yield derived(_GRAPH_SCOPE, None, "an old name of cuda_graph_modules; the host takes one of them")
    if _has_biased_experts(base) and recipe.parallelism.expert_tensor_parallel_size is None:
        yield derived("model.expert_tensor_parallel_size", 1, "experts with biases cannot be split over ranks")
    if not any(part in recipe.precision.recipe for part in ("fp8", "fp4")):
        because = f"only FP8 and FP4 need it; precision.recipe is {recipe.precision.recipe}"
        yield from (derived(path, False, because) for path in _QUANTIZED_ROUTERS if value_at(base, path))


def prediction_settings(base: Any) -> Iterator[Setting]:
    """Yield the settings that take the layers which predict further tokens out of a model for packed rows.

    Layouts lose them too: `Ett|tmL` -> `Ett|tL`, `[["decoder", "mtp"]]` -> `[["decoder"]]`.
    """
    if not value_at(base, _MTP):
        return
    yield derived(_MTP, None, _NO_MTP)
    layout = value_at(base, _LAYOUT)
    if isinstance(layout, str):
        yield derived(_LAYOUT, layout.replace("m", ""), _NO_MTP)
    elif isinstance(layout, list):
        yield derived(_LAYOUT, [[layer for layer in stage if layer != "mtp"] for stage in layout], _NO_MTP)


def _pipeline_settings(base: Any, recipe: SFTRecipe) -> Iterator[Setting]:
    topology, model = recipe.parallelism, base.model
    stages = (topology.pipeline_model_parallel_size, topology.virtual_pipeline_model_parallel_size or 1)
    of_base = (model.pipeline_model_parallel_size, model.virtual_pipeline_model_parallel_size or 1)
    if stages == of_base:
        return
    because = f"the base's is for {of_base[0]} x {of_base[1]} stages, the run has {stages[0]} x {stages[1]}"
    for path in (_LAYOUT, *_SPLITS):
        value = value_at(base, path)
        if value:
            yield derived(path, False if value is True else None, because)


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
    if (topology.expert_tensor_parallel_size or 1) > 1 and _has_biased_experts(config):
        raise ConfigError(
            f"parallelism.expert_tensor_parallel_size is {topology.expert_tensor_parallel_size}; allowed: 1, as the "
            f"experts of this {model} have biases. Set it to 1."
        )


def _has_biased_experts(base: Any) -> bool:
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
