"""The recipe of an artifact's manifest, as the build that wrote it read it, and how a run's differs from it."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from bridgepack.config.errors import alternatives
from bridgepack.config.recipe.data import REMOVED_ENGINES
from bridgepack.config.recipe.fingerprint import NOT_IN_ROWS
from bridgepack.config.recipe.preprocessing import PREPROCESSING_KINDS
from bridgepack.config.recipe.quantities import without_idle
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.section import younger_fields
from bridgepack.host import release_for
from bridgepack.records import Manifest
from bridgepack.records.results import leaves

#: Sections of a recipe that decide what is in the packs.
_OF_PACKS = ("data", "tokenizer", "preprocessing", "packing")


def recorded_recipe_values(manifest: Manifest) -> dict[str, Any]:
    """Return the plain values of a manifest's recipe; a field of `preprocessing` younger than it has its `Before`.

    Without that, a default that came later would claim other rows than the artifact has. An engine that was removed
    since is left out: the choice never changes a token. So is a default beside which another setting of the same
    quantity stands, because a manifest has every field.
    """
    values = _without_idle(manifest.recipe)
    tokenizer = values.get("tokenizer")
    if isinstance(tokenizer, Mapping) and tokenizer.get("engine") in REMOVED_ENGINES:
        values["tokenizer"] = {name: value for name, value in tokenizer.items() if name != "engine"}
    preprocessing = values.get("preprocessing")
    section = PREPROCESSING_KINDS.get(str(preprocessing.get("kind"))) if isinstance(preprocessing, Mapping) else None
    if section is None or not isinstance(preprocessing, Mapping):
        return values
    return {**values, "preprocessing": {**younger_fields(section), **preprocessing}}


def _without_idle(values: Mapping[str, Any]) -> dict[str, Any]:
    version = values.get("bridge_version")
    defaults = {
        f"{name}.{field}": info.default
        for name, section in SFTRecipe.model_fields.items()
        for kind in alternatives(section.annotation)
        if isinstance(kind, type) and issubclass(kind, BaseModel)
        for field, info in kind.model_fields.items()
    }
    return without_idle(values, defaults, release_for(version if isinstance(version, str) else None))


def other_settings(recipe: SFTRecipe, packs: SFTRecipe) -> Iterator[tuple[str, Any, Any]]:
    """Yield the fields about rows that differ between a run's recipe and the one of its packs, with both values."""
    recipe_values, pack_values = (
        dict(leaves(item.model_dump(mode="json", include=set(_OF_PACKS), exclude={"packing": set(NOT_IN_ROWS)})))
        for item in (recipe, packs)
    )
    for name in dict.fromkeys([*recipe_values, *pack_values]):
        if recipe_values.get(name) != pack_values.get(name):
            yield name, recipe_values.get(name), pack_values.get(name)
