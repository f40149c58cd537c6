"""The text of a new recipe file: for a model, a number of GPUs and a length, with comments, and clean under `check`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bridgepack.config.catalogue import CatalogueEntry
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.starting.commented import commented_yaml
from bridgepack.config.starting.nearest import starting_recipe
from bridgepack.config.write import written_values
from bridgepack.errors import ConfigError

type MethodKind = Literal["full", "lora", "dora"]

#: Token slots of an optimiser step.
TOKENS_PER_STEP = 1 << 19
_VALIDATION_FRACTION = 0.02
#: Recipes of Megatron-Bridge have this in their names.
SHIPPED_MARKS = ("_sft_", "_peft_")


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What a new recipe is for.

    Attributes:
        name: of the recipe.
        model: id on the hub, folder, recipe of Megatron-Bridge or of the catalogue.
        num_gpus: of the run.
        seq_length: runtime tokens of a pack.
        method: what is trained; None for what the model's name says, else every weight.
        data: training data.
        tokenizer: id on the hub or folder; None for the model's.
    """

    name: str
    model: str
    num_gpus: int
    seq_length: int
    method: MethodKind | None = None
    data: str = "data/chats.jsonl"
    tokenizer: str | None = None

    @property
    def kind(self) -> MethodKind:
        """What is trained."""
        return self.method or ("lora" if "_peft_" in self.model else "full")


def values_like(same: Sequence[CatalogueEntry], wish: Wish) -> tuple[dict[str, Any], str]:
    """Return the values of the recipe of the catalogue that fits a wish, and in words where they are from.

    Args:
        same: the recipes for the wanted model.
        wish: what the new recipe is for.

    Raises:
        ConfigError: none fits the GPUs, the length or the method.
    """
    entry = starting_recipe(
        same, wish.model, is_full=wish.kind == "full", num_gpus=wish.num_gpus, seq_length=wish.seq_length
    )
    return _from_entry(entry, wish), f"topology and settings as in {entry.name} of the catalogue"


def recipe_text(wish: Wish, values: Mapping[str, Any], origin: str) -> str:
    """Return the YAML text of a recipe with what a wish says, and comments.

    Args:
        wish: what it is for.
        values: of the other fields.
        origin: where its topology is from.

    Raises:
        ConfigError: the values do not fit each other.
    """
    recipe = SFTRecipe.from_mapping(_completed(values, wish))
    recipe.resolve()
    return commented_yaml(recipe, origin)


def write_new(path: Path, text: str) -> Path:
    """Write a new recipe file and return its path; a file that is there is never written over.

    Raises:
        ConfigError: the path is no YAML file, is taken, or cannot be written.
    """
    if path.suffix.lower() not in {".yaml", ".yml"}:
        raise ConfigError(f"--output is {str(path)!r}; allowed: a file whose name ends in .yaml or .yml. Rename it.")
    if path.exists():
        raise ConfigError(f"{str(path)!r} is there already; allowed: a new file. Choose another name or --output.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(
            f"--output is {str(path)!r}; it cannot be written: {error.strerror}. Choose another."
        ) from None
    return path


def _from_entry(entry: CatalogueEntry, wish: Wish) -> dict[str, Any]:
    assert entry.recipe is not None
    values = {name: value for name, value in written_values(entry.recipe).items() if name != "artifact"}
    is_hub_id = "/" in wish.model or Path(wish.model).is_dir()
    if is_hub_id:
        values["tokenizer"] = {**values["tokenizer"], "name_or_path": wish.model}
    elif wish.model.endswith("_config"):
        values["model"] = {**values["model"], "name": wish.model.removeprefix("bridge:")}
    return values


def _completed(values: Mapping[str, Any], wish: Wish) -> dict[str, Any]:
    """Return a recipe's values with what the wish says."""
    tokenizer = {**values["tokenizer"], **({"name_or_path": wish.tokenizer} if wish.tokenizer else {})}
    weights = tokenizer["name_or_path"].rstrip("/").rpartition("/")[2]
    return {
        "preprocessing": {"kind": "chat", "loss_mode": "assistant", "over_long": "drop"},
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
