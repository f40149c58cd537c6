"""What commands are pointed at: recipes, and targets that are loaded once and handed on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridgepack.bridge.targets import Target
from bridgepack.bridge.targets import recipe_target as recipe_target
from bridgepack.config.reading import FORMS
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError

_KINDS = {"artifact": "an artifact", "saved": "a saved ConfigContainer", "container": "a ConfigContainer"}
#: A recipe, its fields, or its location.
Recipe = SFTRecipe | Mapping[str, Any] | str | Path


def recipe_of(target: Target) -> SFTRecipe:
    """Return the recipe of a target.

    Raises:
        ConfigError: it is something else.
    """
    if target.recipe is None:
        raise ConfigError(f"recipe is {target.place!r}, {_KINDS[target.kind]}; allowed: {FORMS}. Give a recipe.")
    return target.recipe
