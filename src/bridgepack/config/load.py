"""Finds and loads a recipe: a YAML or TOML file, a Python function by path or module, or a catalogue name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridgepack.config.catalogue import catalogue_target
from bridgepack.config.reading import as_recipe, load_object, parse_overrides, read_sections, written_in
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError

__all__ = ["load_recipe", "parse_overrides"]


def load_recipe(
    target: str | Path | SFTRecipe | Mapping[str, Any], overrides: Mapping[str, Any] | None = None
) -> SFTRecipe:
    """Return the recipe that `target` names, with overrides applied and validated.

    Args:
        target: a recipe, its fields as plain values, or its location: `FILE.yaml`, `FILE.toml`, `FILE.py[:FUNCTION]`,
            `package.module:FUNCTION`, or a name in the catalogue. FUNCTION takes no arguments; it may be omitted if the
            file has exactly one `*_recipe` function.
        overrides: dotted path -> value, e.g. `{"packing.packed_sequence_size": 8192}`.

    Raises:
        ConfigError: it cannot be found or read, or has an unknown field or an impossible value.
    """
    if isinstance(target, Mapping):
        recipe = SFTRecipe.from_mapping(target)
    else:
        recipe = target if isinstance(target, SFTRecipe) else _load(str(target))
    return recipe.override(overrides) if overrides else recipe


def _load(target: str) -> SFTRecipe:
    place, _, function = target.rpartition(":") if ":" in target else (target, "", "")
    suffix = Path(place).suffix.lower()
    if suffix in {".yaml", ".yml", ".toml"}:
        if function:
            raise ConfigError(f"recipe is {target!r}; a {suffix} file has no functions. Remove :{function}.")
        values = read_sections(Path(place))
        with written_in(Path(place)):
            return SFTRecipe.from_mapping(values)
    if not function and suffix != ".py":
        return _load(catalogue_target(target))
    return as_recipe(load_object(target), target)
