"""Recipes as nemo-run configs: trees of plain fields for dotted overrides, validated when they are built."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import catalogue as registry  # type: ignore[import-untyped]
import nemo_run as run
from nemo_run.config import get_type_namespace

from bridgepack.config.load import catalogue_names, load_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.write import written_values
from bridgepack.launch.preflight import with_types

#: Fields of a recipe without subfields.
_PLAIN = frozenset({"name", "artifact"})


def as_config(recipe: SFTRecipe | str | Path, overrides: Mapping[str, Any] | None = None) -> run.Config[SFTRecipe]:
    """Return a recipe as a `run.Config` whose fields can be set: `config.packing.packed_sequence_size = 8192`.

    It has every section; those with only defaults are empty. Values are validated when the config is built, so a wrong
    name or value is a ConfigError of bridgepack, not an error of fiddle.

    Example: `run.Partial(build, recipe=as_config("qwen3_8b_sft_4gpu_h100_bf16_recipe"))`.

    Raises:
        ConfigError: it cannot be found or read, or has an unknown field or an impossible value.
    """
    values = written_values(load_recipe(recipe, overrides))
    sections: dict[str, Any] = {name: {} for name in SFTRecipe.model_fields if name not in _PLAIN}
    tree = {name: _node(value) for name, value in {**sections, **values}.items()}
    return run.Config(recipe_of, **tree)


@with_types
def recipe_of(**sections: Any) -> SFTRecipe:
    """Return the recipe with these sections as plain values; empty sections are ignored.

    Raises:
        ConfigError: naming every wrong field, its value, what is allowed and what to do.
    """
    return SFTRecipe.from_mapping({name: value for name, value in sections.items() if value != {}})


@with_types
def section_of(**fields: Any) -> dict[str, Any]:
    """Return one section's fields; nemo-run 0.11 cannot save a config of `dict` itself."""
    return fields


def register_factories() -> None:
    """Register every recipe of the catalogue by name with nemo-run's command line, for arguments of type SFTRecipe.

    Existing factories of the same name are kept.
    """
    for name in catalogue_names():
        if not registry.check_exists(get_type_namespace(SFTRecipe), name):
            run.cli.factory(_factory(name), target=SFTRecipe, name=name)


def _factory(name: str) -> Callable[[], run.Config[SFTRecipe]]:
    def factory() -> run.Config[SFTRecipe]:
        """Return the recipe."""
        return as_config(name)

    factory.__name__ = factory.__qualname__ = name
    return factory


def _node(value: Any) -> Any:
    """Return plain values with every mapping as a config whose fields can be set."""
    if isinstance(value, Mapping):
        return run.Config(section_of, **{str(key): _node(item) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return [_node(item) for item in value]
    return value
