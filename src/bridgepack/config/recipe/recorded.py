"""The recipe of an artifact's manifest, as the build that wrote it read it."""

from collections.abc import Mapping
from typing import Any

from bridgepack.config.recipe.data import REMOVED_ENGINES
from bridgepack.config.recipe.preprocessing import PREPROCESSING_KINDS
from bridgepack.config.section import younger_fields
from bridgepack.records import Manifest


def recorded_recipe_values(manifest: Manifest) -> dict[str, Any]:
    """Return the plain values of a manifest's recipe; a field of `preprocessing` younger than it has its `Before`.

    Without that, a default that came later would claim other rows than the artifact has. An engine that was removed
    since is left out: the choice never changes a token.
    """
    values = dict(manifest.recipe)
    tokenizer = values.get("tokenizer")
    if isinstance(tokenizer, Mapping) and tokenizer.get("engine") in REMOVED_ENGINES:
        values["tokenizer"] = {name: value for name, value in tokenizer.items() if name != "engine"}
    preprocessing = values.get("preprocessing")
    section = PREPROCESSING_KINDS.get(str(preprocessing.get("kind"))) if isinstance(preprocessing, Mapping) else None
    if section is None or not isinstance(preprocessing, Mapping):
        return values
    return {**values, "preprocessing": {**younger_fields(section), **preprocessing}}
