"""Finds and calls the recipes that Megatron-Bridge ships, by name."""

import re
from collections.abc import Callable, Mapping
from inspect import isfunction
from pathlib import Path
from typing import Any

from bridgepack.bridge.imports import import_host
from bridgepack.config.errors import did_you_mean, quote
from bridgepack.config.recipe.training import ModelConfig
from bridgepack.errors import ConfigError
from bridgepack.host import HostRelease, release_of

#: Prefix of a recipe that Megatron-Bridge ships, e.g. `bridge:qwen3_8b_sft_config`.
PREFIX = "bridge:"
SUFFIX = "_config"
#: Module that exports the recipes of every family, below the package.
MODULE = "recipes"
#: Advice for an unknown name.
LISTED = "`bridgepack recipes list` names them."
#: Module with the registered kinds of mixed precision, below the package.
PRECISIONS = "training.mixed_precision"

_NAME = re.compile(r"(?!_).*_(sft|peft)(_.*)?_config")
#: Errors of a recipe whose model config cannot be read, that needs a GPU, or that refuses by design.
_RECIPE_ERRORS = (OSError, RuntimeError, ValueError, TypeError, ImportError, AssertionError)


def shipped_recipes() -> Mapping[str, Callable[[], Any]]:
    """Return every SFT and PEFT recipe function of the installed Megatron-Bridge by name, sorted.

    Raises:
        ConfigError: Megatron-Bridge cannot be imported.
    """
    module = import_host(MODULE)
    names = sorted(name for name, value in vars(module).items() if isfunction(value) and _NAME.fullmatch(name))
    return {name: getattr(module, name) for name in names}


def installed_release() -> HostRelease:
    """Return the release of the installed Megatron-Bridge.

    Raises:
        ConfigError: Megatron-Bridge cannot be imported, or is older than every supported release.
    """
    return release_of(import_host().__version__, place="the installed megatron-bridge")


def shipped_name(name: str) -> str:
    """Return the full function name for a text; `bridge:` and `_config` are optional in it.

    Example: `bridge:qwen3_8b_sft_4gpu_h100_bf16` -> `qwen3_8b_sft_4gpu_h100_bf16_config`.
    """
    name = name.removeprefix(PREFIX)
    return name if name.endswith(SUFFIX) else f"{name}{SUFFIX}"


def is_shipped_model(model: ModelConfig) -> bool:
    """Return whether a model is named by a recipe of Megatron-Bridge, not by a hub id or a folder."""
    return model.name.startswith(PREFIX) or ("/" not in model.name and not Path(model.name).is_dir())


def load_shipped(name: str, *, field: str = "model.name") -> Any:
    """Return the ConfigContainer of a shipped recipe.

    Args:
        name: name of the function, as for `shipped_name`.
        field: field in which the user set it, for the message.

    Raises:
        ConfigError: there is no such recipe, or it cannot be called here.
    """
    recipes, function = shipped_recipes(), shipped_name(name)
    if function not in recipes:
        hint = did_you_mean(function, recipes, LISTED)
        raise ConfigError(
            f"{field} is {quote(name)}; allowed: one of the {len(recipes)} SFT and PEFT recipes of the installed "
            f"Megatron-Bridge, an id on the Hugging Face hub (org/name), or a folder. {hint}",
            field=field,
        )
    try:
        return recipes[function]()
    except _RECIPE_ERRORS as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"{field} is {quote(name)}, which Megatron-Bridge cannot make here: {type(error).__name__}: {reason}. "
            "Allowed: a recipe whose model config is in the Hugging Face cache or can be fetched, on a machine that "
            "it asks for. Fetch the model's config.json, or use another recipe.",
            field=field,
        ) from error


def named_precision(name: str) -> Any:
    """Return Megatron-Bridge's registered mixed precision with a name, or None."""
    makers = import_host(PRECISIONS).MIXED_PRECISION_RECIPES
    return makers[name]() if name in makers else None
