"""The recipe that an artifact was built with, with its sources where they are now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.errors import ConfigError
from bridgepack.proof.runs import plain

#: Settings that say where sources are, not what is made of them.
_PLACES = (
    "data.train",
    "data.validation",
    "tokenizer.name_or_path",
    "tokenizer.revision",
    "tokenizer.chat_template",
)


def recorded_recipe(artifact: Artifact, overrides: Mapping[str, Any]) -> SFTRecipe:
    """Return the manifest's recipe with sources where they are now.

    Raises:
        ConfigError: an override says something else.
    """
    for path in overrides:
        if path not in _PLACES:
            raise ConfigError(
                f"--set {path}; allowed: {', '.join(_PLACES)}. An artifact is verified with the recipe that it was "
                "built with; only where its sources are may be another."
            )
    recipe = SFTRecipe.from_mapping(plain(artifact.manifest.recipe))
    return recipe.override(overrides) if overrides else recipe
