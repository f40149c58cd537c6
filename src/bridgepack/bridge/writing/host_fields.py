"""What users write for a setting, and the kinds of mixed precision that the host has registered."""

from typing import Any

from bridgepack.bridge.shipped import import_host
from bridgepack.bridge.wiring import OVERRIDES, Setting

#: Module with the registered kinds of mixed precision.
PRECISIONS = "megatron.bridge.training.mixed_precision"


def field_of(setting: Setting) -> str:
    """Return what the user would write to decide a setting: a field of the recipe, or an override."""
    return setting.field or f"{OVERRIDES}.{setting.path}"


def named_precision(name: str) -> Any:
    """Return the mixed precision that Megatron-Bridge has registered under a name; None where there is none."""
    registered = import_host(PRECISIONS).MIXED_PRECISION_RECIPES
    return registered[name]() if name in registered else None
