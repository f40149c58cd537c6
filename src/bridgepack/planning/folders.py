"""A new recipe for a model in a folder: its config decides the topology, its weights and its tokenizer are named."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

from bridgepack.bridge.model_folder import ModelFolder, read_model_folder
from bridgepack.config.errors import quote
from bridgepack.config.load import CatalogueEntry
from bridgepack.config.starting import Wish, recipes_of_model, starting_entries
from bridgepack.data.tokenizers.files import refuse_unreadable_files
from bridgepack.errors import ConfigError
from bridgepack.host.checkpoints import VOCABULARY
from bridgepack.planning.shape import ModelShape, hub_settings, model_shape, shape_of


def with_folder(wish: Wish) -> Wish:
    """Return a wish with the weights and the tokenizer of its model's folder; as it is if the model is no folder.

    The model of checkpoints of Megatron-Bridge is the one that they were imported from.

    Raises:
        ConfigError: the folder has an adapter, checkpoints that do not name their model, or no tokenizer; or a
            file of the model or of the tokenizer cannot be read.
    """
    if wish.tokenizer is not None:
        refuse_unreadable_files(Path(wish.tokenizer))
    if not Path(wish.model).is_dir():
        return wish
    folder = read_model_folder(Path(wish.model))
    name = wish.model if "/" in wish.model else f"./{wish.model}"
    if folder.base is not None:
        raise ConfigError(
            f"--model is {quote(wish.model)}, which has an adapter of {quote(folder.base)}; allowed: a whole model. "
            "Merge the adapter into its weights, or name its model."
        )
    if not folder.config and folder.run_config:
        if folder.hub_id is None:
            raise ConfigError(
                f"--model is {quote(wish.model)}, checkpoints that do not name their model; allowed: checkpoints that "
                "were imported with an id of the hub. Name the model, and set checkpoint.pretrained to the folder."
            )
        return replace(wish, model=folder.hub_id, weights=name, tokenizer=wish.tokenizer or _tokenizer(folder, name))
    tokenizer = wish.tokenizer or _tokenizer(folder, name)
    if folder.config and tokenizer is None and not any(VOCABULARY.search(file.name) for file in folder.path.iterdir()):
        raise ConfigError(
            f"--model is {quote(wish.model)}, a folder without a tokenizer's vocabulary, such as tokenizer.json, so "
            "texts would become no tokens. Add --tokenizer with the model's tokenizer, an id on the hub or a folder."
        )
    return replace(wish, model=name, weights=None if folder.kind is None else name, tokenizer=tokenizer)


def _tokenizer(folder: ModelFolder, name: str) -> str | None:
    if folder.tokenizer is None:
        return folder.tokenizer_name
    inside = folder.tokenizer.folder.relative_to(folder.path)
    return name if inside == Path() else f"{name.rstrip('/')}/{inside}"


def entries_of(entries: Sequence[CatalogueEntry], model: str) -> list[CatalogueEntry]:
    """Return the catalogue's recipes for a model, as in `Wish`; of a folder, those of models with its sizes.

    Raises:
        ConfigError: the folder has no config.json that can be read.
    """
    if not Path(model).is_dir():
        return recipes_of_model(entries, model)
    try:
        sizes = _sizes(shape_of(hub_settings(Path(model))))
    except ConfigError:  # layers without a formula here, or no config at all
        named_alike = recipes_of_model(entries, model if "/" in model else f"./{model}")
        if named_alike and read_model_folder(Path(model)).config.get("architectures"):
            return named_alike
        raise
    except (LookupError, ValueError, TypeError, ZeroDivisionError, AttributeError):
        return []
    bases: dict[str, tuple[Any, ...]] = {}
    return [entry for entry in starting_entries(entries) if _sizes_of_base(entry, bases) == sizes]


def has_known_layers(folder: str) -> bool:
    """Return whether the layers of a folder's model can be planned."""
    try:
        hub_settings(Path(folder))
    except ConfigError:
        return False
    return True


def _sizes(shape: ModelShape) -> tuple[Any, ...]:
    """Return what tells models apart: what recomputation keeps is left out, as a base may set it."""
    layers = [(layer.weights, layer.routed, layer.scan, layer.width, layer.window) for layer in shape.layers]
    return (
        *(shape.hidden_size, shape.num_attention_heads, shape.num_query_groups),
        *(shape.num_experts, shape.has_tied_embeddings, layers),
    )


def _sizes_of_base(entry: CatalogueEntry, bases: dict[str, tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the sizes of an entry's model, empty if they are not known; `bases` keeps those of each base."""
    assert entry.recipe is not None
    assert entry.recipe.model is not None
    name = entry.recipe.model.name
    if name not in bases:
        try:
            bases[name] = _sizes(model_shape(entry.recipe))
        except ConfigError:
            bases[name] = ()
    return bases[name]


def of_folder(values: Mapping[str, Any], wish: Wish) -> dict[str, Any]:
    """Return the values of a catalogue's recipe for the model in a folder, whose config replaces the recipe's base.

    Raises:
        ConfigError: its pipeline stages are uneven, which only the base says.
    """
    model = {name: value for name, value in values["model"].items() if name not in ("revision", "trust_remote_code")}
    topology = values.get("parallelism", {})
    sizes = (f"{name}pipeline_model_parallel_size" for name in ("", "virtual_"))
    num_stages = prod(topology.get(size) or 1 for size in sizes)
    if num_stages > 1 and (not has_known_layers(wish.model) or _num_layers(wish.model) % num_stages):
        raise ConfigError(
            f"--model is {quote(wish.model)}, whose layers cannot be shared evenly by {num_stages} stages, as in the "
            "catalogue. Name the model by its id on the hub, and set checkpoint.pretrained to the folder."
        )
    return {**values, "model": {**model, "name": wish.model}}


def _num_layers(folder: str) -> int:
    return len(shape_of(hub_settings(Path(folder))).layers)
