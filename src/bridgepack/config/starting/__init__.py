"""Writes a new commented recipe file for a model, GPU count and sequence length; it passes `check`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bridgepack.config.catalogue import CatalogueEntry
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.starting.commented import commented_yaml
from bridgepack.config.starting.nearest import Wish, starting_recipe
from bridgepack.config.write import written_values
from bridgepack.errors import ConfigError

#: Token slots of an optimiser step.
TOKENS_PER_STEP = 1 << 19
_VALIDATION_FRACTION = 0.02


def values_like(same: Sequence[CatalogueEntry], wish: Wish) -> tuple[dict[str, Any], str]:
    """Return the values of the catalogue recipe that fits a wish, and their origin in words.

    Raises:
        ConfigError: none fits the GPUs, the length or the method.
    """
    name, recipe = starting_recipe(same, wish)
    values = {name: value for name, value in written_values(recipe).items() if name != "artifact"}
    if "/" in wish.model or Path(wish.model).is_dir():
        values["tokenizer"] = {**values["tokenizer"], "name_or_path": wish.model}
    elif wish.model.endswith("_config"):
        values["model"] = {**values["model"], "name": wish.model.removeprefix("bridge:")}
    return values, f"topology and settings from {name} in the catalogue"


def recipe_text(wish: Wish, values: Mapping[str, Any], origin: str) -> str:
    """Return the commented YAML text of a recipe with the settings of a wish and `values` for the other fields.

    Raises:
        ConfigError: the values contradict each other.
    """
    recipe = recipe_for(wish, values)
    recipe.resolve()
    return commented_yaml(recipe, origin)


def recipe_for(wish: Wish, values: Mapping[str, Any]) -> SFTRecipe:
    """Return a recipe with the settings of a wish and `values` for the other fields.

    Raises:
        ConfigError: the values contradict each other.
    """
    tokenizer = {**values["tokenizer"], **({"name_or_path": wish.tokenizer} if wish.tokenizer else {})}
    model = wish.model if "/" in wish.model else values["tokenizer"]["name_or_path"]
    weights = model.rstrip("/").rpartition("/")[2].rpartition(":")[2]
    return SFTRecipe.from_mapping(
        {
            "preprocessing": {"kind": "chat", "loss_mode": "assistant", "over_long": "drop", **wish.columns},
            "schedule": {"num_epochs": 1},
            "batch": {"tokens_per_step": TOKENS_PER_STEP},
            **values,
            "name": wish.name,
            "data": {"train": wish.data, "validation_fraction": _VALIDATION_FRACTION},
            "tokenizer": tokenizer,
            "packing": {**values.get("packing", {}), "packed_sequence_size": wish.seq_length},
            "parallelism": {**values.get("parallelism", {}), "num_gpus": wish.num_gpus},
            "method": {**values.get("method", {}), "kind": wish.kind},
            "checkpoint": {"pretrained": f"checkpoints/{weights}", "folder": f"runs/{wish.name}"},
        }
    )


def refuse_taken(path: Path, *, option: str = "--output") -> None:
    """Check that a new recipe file may be written to `path`.

    Raises:
        ConfigError: the path is not a YAML file, or exists.
    """
    if path.suffix.lower() not in {".yaml", ".yml"}:
        raise ConfigError(f"{option} is {str(path)!r}; allowed: a file whose name ends in .yaml or .yml. Rename it.")
    if path.exists():
        raise ConfigError(f"{str(path)!r} already exists; allowed: a new file. Choose another name or {option}.")


def write_new(path: Path, text: str, *, option: str = "--output") -> Path:
    """Write a new recipe file and return its path; an existing file is never overwritten.

    Raises:
        ConfigError: the path is not a YAML file, exists, or cannot be written.
    """
    refuse_taken(path, option=option)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            try:
                file.write(text)
                file.flush()
            except OSError:
                path.unlink()
                raise
    except OSError as error:
        raise ConfigError(
            f"{option} is {str(path)!r}; it cannot be written: {error.strerror}. Choose another."
        ) from None
    return path
