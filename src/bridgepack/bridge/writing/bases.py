"""The ConfigContainer that a recipe starts from."""

from typing import Any

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
