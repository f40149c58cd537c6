"""The recipe of the catalogue that a new recipe can start from."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from bridgepack.config.catalogue import CatalogueEntry
from bridgepack.config.reading import RECIPE_SUFFIX
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError

#: Words of a hub id that do not tell architectures apart.
_WORDS_OF_VARIANTS = frozenset({"instruct", "it", "chat", "base", "bf16", "meta", "nvidia"})
_METHOD_MARKS = ("_sft_", "_peft_")
_DECIMAL = re.compile(r"(?<=\d)p(?=\d)")
_PREFIX, _CONFIG_SUFFIX = "bridge:", "_config"


def recipes_of_model(entries: Sequence[CatalogueEntry], model: str) -> list[CatalogueEntry]:
    """Return the offline recipes for a model's architecture.

    Args:
        entries: the catalogue.
        model: id on the hub, recipe of Megatron-Bridge, or recipe of the catalogue.
    """
    plain = [entry for entry in entries if entry.recipe and entry.recipe.model and _is_plain(entry.recipe)]
    named = [entry for entry in plain if entry.name in {model, f"{model}{RECIPE_SUFFIX}"}]
    if named:
        return [entry for entry in plain if _architecture(entry) == _architecture(named[0])]
    words = _significant(model) if "/" in model or Path(model).is_dir() else ()
    found = [entry for entry in plain if _contains(words, _architecture(entry)) or _is_base(entry, model)]
    longest = max((len(_architecture(entry)) for entry in found), default=0)
    return [entry for entry in found if len(_architecture(entry)) == longest]


def starting_recipe(
    entries: Sequence[CatalogueEntry], model: str, *, is_full: bool, num_gpus: int, seq_length: int
) -> CatalogueEntry:
    """Return the recipe of a model whose topology takes the sequences and divides the GPUs, the shortest first.

    Args:
        entries: recipes of one model.
        model: as the user named it.
        is_full: whether every weight is trained.
        num_gpus: of the run.
        seq_length: runtime tokens of a pack.

    Raises:
        ConfigError: there is none.
    """
    same = [
        (entry, entry.recipe) for entry in entries if entry.recipe and (entry.recipe.method.kind == "full") == is_full
    ]
    long_enough = [pair for pair in same if pair[1].packing.packed_sequence_size >= seq_length]
    method = "full" if is_full else "lora"
    if not same:
        raise ConfigError(
            f"--method is {method}; the catalogue has none for {model}. Use the other, or name the model's folder."
        )
    if not long_enough:
        longest = max(recipe.packing.packed_sequence_size for _, recipe in same)
        raise ConfigError(
            f"--seq-length is {seq_length}; allowed for {model}: at most {longest}, the longest in the catalogue. "
            "Start there, and change the file where the model takes more."
        )
    fitting = [pair for pair in long_enough if _divides(pair[1], num_gpus, seq_length)]
    if not fitting:
        raise ConfigError(_does_not_divide(model, method, num_gpus, seq_length, [recipe for _, recipe in long_enough]))
    return min(fitting, key=lambda pair: (pair[1].packing.packed_sequence_size, _num_ranks(pair[1]), pair[0].name))[0]


def name_words(name: str) -> tuple[str, ...]:
    """Return the words of a model's name, for comparisons: `Qwen/Qwen3-1.7B`, `qwen3_1p7b` -> `(qwen3, 1.7b)`."""
    text = _DECIMAL.sub(".", name.rstrip("/").rpartition("/")[2].lower())
    return tuple(word for word in re.split(r"[-_ ]+", text) if word)


def _is_plain(recipe: SFTRecipe) -> bool:
    """Say whether a recipe shows a topology, not a special setting: graphs, levels of context parallelism."""
    is_special = recipe.packing.pad_cu_seqlens or recipe.parallelism.hierarchical_context_parallel_sizes
    return recipe.packing.mode == "offline" and recipe.cuda_graphs.implementation == "none" and not is_special


def _architecture(entry: CatalogueEntry) -> tuple[str, ...]:
    assert entry.recipe is not None
    return _significant(entry.recipe.tokenizer.name_or_path)


def _significant(name: str) -> tuple[str, ...]:
    return tuple(word for word in name_words(name) if word not in _WORDS_OF_VARIANTS)


def _is_base(entry: CatalogueEntry, model: str) -> bool:
    """Say whether a recipe's base is the named one, or another of the same model: up to `_sft_` their names agree."""
    assert entry.recipe is not None
    assert entry.recipe.model is not None
    base = entry.recipe.model.name
    is_shipped = model.startswith(_PREFIX) or model.endswith(_CONFIG_SUFFIX) or base == f"{model}{_CONFIG_SUFFIX}"
    return is_shipped and bool(_stem(model)) and _stem(model) == _stem(base)


def _stem(name: str) -> str:
    for mark in _METHOD_MARKS:
        before, found, _ = name.partition(mark)
        if found:
            return before.removeprefix(_PREFIX)
    return ""


def _contains(words: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    return any(words[index : index + len(wanted)] == wanted for index in range(len(words) - len(wanted) + 1))


def _divides(recipe: SFTRecipe, num_gpus: int, seq_length: int) -> bool:
    is_enough = num_gpus >= (recipe.parallelism.num_gpus or 1)
    return is_enough and num_gpus % _unit(recipe) == 0 and seq_length % recipe.resolve().pad_seq_to_mult.value == 0


def _num_ranks(recipe: SFTRecipe) -> int:
    topology = recipe.parallelism
    return topology.tensor_model_parallel_size * topology.pipeline_model_parallel_size * topology.context_parallel_size


def _unit(recipe: SFTRecipe) -> int:
    """Return what the number of GPUs has to be a multiple of: ranks of a copy, and of the experts."""
    topology = recipe.parallelism
    tensor = topology.expert_tensor_parallel_size or topology.tensor_model_parallel_size
    experts = tensor * topology.expert_model_parallel_size * topology.pipeline_model_parallel_size
    return math.lcm(_num_ranks(recipe), experts)


def _does_not_divide(model: str, method: str, num_gpus: int, seq_length: int, recipes: list[SFTRecipe]) -> str:
    multiples = sorted({recipe.resolve().pad_seq_to_mult.value for recipe in recipes})
    if not any(seq_length % multiple == 0 for multiple in multiples):
        multiple = multiples[0]
        upper = -(-seq_length // multiple) * multiple
        return f"--seq-length is {seq_length}; allowed: multiples of {multiple}, what its ranks share. Use {upper}."
    recipe = min(recipes, key=lambda one: (one.packing.packed_sequence_size, one.parallelism.num_gpus or 1))
    unit, least = _unit(recipe), recipe.parallelism.num_gpus or 1
    return (
        f"--gpus is {num_gpus}; allowed for {model}, method {method}, at {seq_length} tokens: multiples of {unit} from "
        f"{-(-least // unit) * unit}, as {recipe.name} of the catalogue has it. Use one of these, or a shorter "
        "--seq-length."
    )
