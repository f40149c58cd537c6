"""What commands are pointed at: recipes, and targets that are loaded once and handed on."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridgepack.bridge.targets import Target
from bridgepack.bridge.targets import recipe_target as recipe_target
from bridgepack.config.load import load_recipe
from bridgepack.config.reading import FORMS
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.reading.kept_rows import with_kept_rows
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


def overridden(recipe: Recipe | Target, overrides: Mapping[str, Any] | None) -> SFTRecipe:
    """Return a recipe with its overrides, loaded unless it has been.

    Raises:
        ConfigError: it cannot be loaded, or is something else.
    """
    return recipe_of(recipe.override(overrides or {})) if isinstance(recipe, Target) else load_recipe(recipe, overrides)


def with_rows_on_disk(target: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a recipe and the options of a call, with the paths of the written rows in place of rows in memory.

    Raises:
        ConfigError, StoreError: as `data.reading.kept_rows.recipe_with_rows`.
    """
    target, overrides = with_kept_rows(target, options.get("overrides"))
    return target, options if overrides is None else {**options, "overrides": overrides}
