"""What commands are pointed at: recipes, and targets that are loaded once and handed on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridgepack.bridge.targets import Target
from bridgepack.bridge.targets import recipe_target as recipe_target
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError

#: A recipe, its fields, or its location.
Recipe = SFTRecipe | Mapping[str, Any] | str | Path


def recipe_of(target: Target) -> SFTRecipe:
    """Return the recipe of a target.

    Raises:
        ConfigError: it is something else.
    """
    if target.recipe is None:
        raise ConfigError(f"target {target.place!r} is not a recipe. Give a recipe.")
    return target.recipe
