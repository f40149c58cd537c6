"""The text of a new recipe file: for a model, a number of GPUs and a length, with comments, and clean under `check`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bridgepack.config.catalogue import CatalogueEntry
from bridgepack.config.errors import nearest_name, shown
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.starting.commented import commented_yaml
from bridgepack.config.starting.models import model_size
from bridgepack.config.starting.nearest import recipes_of_model, starting_recipe
from bridgepack.config.starting.topology import Topology, choose_topology
from bridgepack.config.write import written_values
from bridgepack.errors import ConfigError

type MethodKind = Literal["full", "lora", "dora"]

#: Token slots of an optimiser step.
TOKENS_PER_STEP = 1 << 19
_VALIDATION_FRACTION = 0.02
#: Recipes of Megatron-Bridge have this in their names.
_SHIPPED_MARKS = ("_sft_", "_peft_")


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


def new_recipe(wish: Wish, entries: Sequence[CatalogueEntry]) -> str:
    """Return the YAML text of a new recipe.

    Args:
        wish: what it is for.
        entries: the catalogue; a recipe for the same model is where the new one starts.

    Raises:
        ConfigError: the model is not known, or does not fit the GPUs or the length.
    """
    method: MethodKind = wish.method or ("lora" if "_peft_" in wish.model else "full")
    same = recipes_of_model(entries, wish.model)
    if same:
        entry = starting_recipe(
            same, wish.model, is_full=method == "full", num_gpus=wish.num_gpus, seq_length=wish.seq_length
        )
        values, origin = _from_entry(entry, wish), f"topology and settings as in {entry.name} of the catalogue"
    else:
        topology = _estimated_topology(wish, is_full=method == "full", known=entries)
        values = _from_topology(topology, wish)
        origin = f"topology by an estimate of {topology.estimated_gb:.0f} GB for each GPU; try it before you rely on it"
    recipe = SFTRecipe.from_mapping(_completed(values, wish, method))
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


def _from_topology(topology: Topology, wish: Wish) -> dict[str, Any]:
    parallelism = {
        "tensor_model_parallel_size": topology.tensor,
        "pipeline_model_parallel_size": topology.pipeline,
        "context_parallel_size": topology.context,
        "sequence_parallel": topology.tensor > 1,
    }
    if topology.expert > 1:
        parallelism["expert_model_parallel_size"] = topology.expert
    model = {"name": wish.model, **({"recompute": "full"} if topology.recomputes else {})}
    return {"model": model, "parallelism": parallelism, "tokenizer": {"name_or_path": wish.model}}


def _completed(values: Mapping[str, Any], wish: Wish, method: MethodKind) -> dict[str, Any]:
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
        "method": {**values.get("method", {}), "kind": method},
        "checkpoint": {"pretrained": f"checkpoints/{weights}", "folder": f"runs/{wish.name}"},
    }


def _estimated_topology(wish: Wish, *, is_full: bool, known: Sequence[CatalogueEntry]) -> Topology:
    """Return a topology for a model that the catalogue does not have.

    Raises:
        ConfigError: the name is no model, nothing tells its size, or it does not fit.
    """
    is_shipped = any(mark in wish.model for mark in _SHIPPED_MARKS) and wish.model.endswith("_config")
    if "/" not in wish.model and not Path(wish.model).is_dir() and not is_shipped:
        raise ConfigError(f"--model is {shown(wish.model)}; {_allowed_models(wish.model, known)}")
    if is_shipped and wish.tokenizer is None:
        raise ConfigError(
            f"--model is {shown(wish.model)}, which is not in the catalogue; its tokenizer is not known. "
            "Add --tokenizer with its id on the hub."
        )
    size = model_size(wish.model)
    if size is None:
        raise ConfigError(
            f"--model is {shown(wish.model)}; neither its name nor a config.json says how large it is; allowed: a name "
            "with its size, e.g. org/chat-8b or org/chat-30B-A3B, or a folder with config.json. "
            "Download the model's config.json and name its folder."
        )
    return choose_topology(size, is_full=is_full, num_gpus=wish.num_gpus, seq_length=wish.seq_length)


def _allowed_models(model: str, entries: Sequence[CatalogueEntry]) -> str:
    ids = sorted({entry.recipe.tokenizer.name_or_path for entry in entries if entry.recipe and entry.recipe.model})
    names = {name.rpartition("/")[2].lower(): name for name in ids} | {entry.name: entry.name for entry in entries}
    nearest = nearest_name(model.rpartition("/")[2].lower(), names)
    allowed = "allowed: an id on the hub (org/name), a folder, a recipe of Megatron-Bridge or of the catalogue."
    return f"{allowed} Did you mean {names[nearest]}?" if nearest else f"{allowed} Use one of these."
