"""What a command line needs to read words and to complete them: overrides, facts, names, fields."""

from collections.abc import Iterator
from typing import Any

from bridgepack.checking.options import parse_given as parse_given
from bridgepack.config.errors import alternatives
from bridgepack.config.errors import nearest_name as nearest_name
from bridgepack.config.load import parse_overrides as parse_overrides
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.host import note_of_newer as note_of_newer


def recipe_fields() -> tuple[str, ...]:
    """Return the dotted path of every field of a recipe."""
    return tuple(dict.fromkeys(_paths(SFTRecipe, "")))


def _paths(section: Any, prefix: str) -> Iterator[str]:
    for name, field in section.model_fields.items():
        kinds = [kind for kind in alternatives(field.annotation) if hasattr(kind, "model_fields")]
        yield from [path for kind in kinds for path in _paths(kind, f"{prefix}{name}.")] or [f"{prefix}{name}"]
