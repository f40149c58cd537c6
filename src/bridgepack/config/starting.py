"""Writes a new commented recipe file for a model, GPU count and sequence length; it passes `check`."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from bridgepack.config.detected import data_for, preprocessing_for, sets_for
from bridgepack.config.editing.yaml_text import block_lines
from bridgepack.config.layouts.detect import Detection
from bridgepack.config.load import CatalogueEntry
from bridgepack.config.reading import RECIPE_SUFFIX
from bridgepack.config.recipe.preprocessing import PREPROCESSING_KINDS
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.write import YAML_HEADER, written_values
from bridgepack.errors import ConfigError

type MethodKind = Literal["full", "lora", "dora"]

#: Part of the names of Megatron-Bridge's recipes.
SHIPPED_MARKS = ("_sft_", "_peft_")
#: Words of a hub id that do not distinguish architectures.
_WORDS_OF_VARIANTS = frozenset({"instruct", "it", "chat", "base", "bf16", "meta", "nvidia"})
_DECIMAL, _PREFIX, _CONFIG_SUFFIX = re.compile(r"(?<=\d)p(?=\d)"), "bridge:", "_config"


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """Settings of a new recipe."""

    name: str  #: name of the recipe
    model: str  #: hub id, folder, or recipe of Megatron-Bridge or the catalogue
    num_gpus: int  #: GPUs of the run
    seq_length: int  #: runtime tokens per pack
    method: MethodKind | None = None  #: what is trained; None for the method in the model's name, else all weights
    data: str | tuple[str, ...] = "data/chats.jsonl"  #: training data
    validation: tuple[str, ...] = ()  #: validation data; none to set a fraction of the training rows aside
    #: name of a validation set -> its path and the layout of its rows, None for that of the training data
    sets: Mapping[str, tuple[str, Detection | None]] = MappingProxyType({})
    tokenizer: str | None = None  #: hub id or folder; None for the model's
    weights: str | None = None  #: folder with the model's weights; None for where they will be imported
    validation_fraction: float = 0.02  #: fraction of the rows (0-1) set aside for evaluation
    detection: Detection | None = None  #: layout of the data; None if it is not known, or its files have several
    #: path of a file or folder -> layout of its rows, if the data's files have several layouts
    parts: Mapping[str, Detection] = MappingProxyType({})

    @property
    def layouts(self) -> dict[str, Detection]:
        """Path -> layout of its rows: of parts of the training data, and of validation sets with other layouts."""
        return {**self.parts, **{path: layout for path, layout in self.sets.values() if layout is not None}}

    @property
    def kind(self) -> MethodKind:
        """What is trained."""
        return self.method or ("lora" if "_peft_" in self.model else "full")


def starting_entries(entries: Sequence[CatalogueEntry]) -> list[CatalogueEntry]:
    """Return the recipes of the catalogue that a new one can start from: plain offline packing of a model."""
    return [entry for entry in entries if entry.recipe and entry.recipe.model and _is_plain(entry.recipe)]


def recipes_of_model(entries: Sequence[CatalogueEntry], model: str) -> list[CatalogueEntry]:
    """Return the catalogue's offline recipes for a model's architecture; `model` as in `Wish`, but no folder."""
    plain = starting_entries(entries)
    entries_of_name = [entry for entry in plain if entry.name in {model, f"{model}{RECIPE_SUFFIX}"}]
    if entries_of_name:
        return [entry for entry in plain if _architecture(entry) == _architecture(entries_of_name[0])]
    words = _significant(model) if "/" in model else ()
    entries_of_model = [entry for entry in plain if _contains(words, _architecture(entry)) or _is_base(entry, model)]
    longest = max((len(_architecture(entry)) for entry in entries_of_model), default=0)
    return [entry for entry in entries_of_model if len(_architecture(entry)) == longest]


def starting_recipe(entries: Sequence[CatalogueEntry], wish: Wish) -> tuple[str, SFTRecipe]:
    """Return (name, recipe) of the shortest recipe of the model that fits the sequence length and divides the GPUs.

    Raises:
        ConfigError: none fits.
    """
    is_full = wish.kind == "full"
    method = "full" if is_full else "lora"
    recipes = {entry.name: entry.recipe for entry in entries if entry.recipe}
    recipes_of_kind = {name: recipe for name, recipe in recipes.items() if (recipe.method.kind == "full") == is_full}
    if not recipes_of_kind:
        raise ConfigError(
            f"--method is {method}; the catalogue has no {method} recipe for {wish.model}. Use the other, or name the "
            "model's folder."
        )
    longest = max(recipe.packing.packed_sequence_size for recipe in recipes_of_kind.values())
    if longest < wish.seq_length:
        raise ConfigError(
            f"--seq-length is {wish.seq_length}; allowed for {wish.model}: at most {longest}, the longest in the "
            "catalogue. Start with that, and edit the file if the model supports more."
        )
    enough = {name: sft for name, sft in recipes_of_kind.items() if sft.packing.packed_sequence_size >= wish.seq_length}
    fitting = [
        (recipe.packing.packed_sequence_size, recipe.parallelism.ranks_of_copy, name)
        for name, recipe in enough.items()
        if wish.num_gpus >= (recipe.parallelism.num_gpus or 1)
        and wish.num_gpus % _unit(recipe) == 0
        and wish.seq_length % recipe.resolve().pad_seq_to_mult.value == 0
    ]
    if not fitting:
        raise ConfigError(_does_not_divide(wish, method, list(enough.values())))
    name = min(fitting)[2]
    return name, enough[name]


def _is_plain(recipe: SFTRecipe) -> bool:
    is_special = recipe.packing.pad_cu_seqlens or recipe.parallelism.hierarchical_context_parallel_sizes
    return recipe.packing.mode == "offline" and recipe.cuda_graphs.implementation == "none" and not is_special


def _architecture(entry: CatalogueEntry) -> tuple[str, ...]:
    assert entry.recipe is not None
    return _significant(entry.recipe.tokenizer.name_or_path)


def _significant(name: str) -> tuple[str, ...]:
    """Return the words that identify an architecture: `Qwen/Qwen3-1.7B-Base`, `qwen3_1p7b` -> `(qwen3, 1.7b)`."""
    text = _DECIMAL.sub(".", name.rstrip("/").rpartition("/")[2].lower())
    return tuple(word for word in re.split(r"[-_ ]+", text) if word and word not in _WORDS_OF_VARIANTS)


def _is_base(entry: CatalogueEntry, model: str) -> bool:
    """Return whether a recipe's base is the named one or of the same model: names that agree up to `_sft_`."""
    assert entry.recipe is not None
    assert entry.recipe.model is not None
    base = entry.recipe.model.name
    is_shipped = model.startswith(_PREFIX) or model.endswith(_CONFIG_SUFFIX) or base == f"{model}{_CONFIG_SUFFIX}"
    return is_shipped and bool(_stem(model)) and _stem(model) == _stem(base)


def _stem(name: str) -> str:
    stems = (name.partition(mark)[0].removeprefix(_PREFIX) for mark in SHIPPED_MARKS if mark in name)
    return next(stems, "")


def _contains(words: tuple[str, ...], part: tuple[str, ...]) -> bool:
    return any(words[index : index + len(part)] == part for index in range(len(words) - len(part) + 1))


def _unit(recipe: SFTRecipe) -> int:
    """Return the number that the GPUs must be a multiple of: ranks per model copy, and per expert group."""
    topology = recipe.parallelism
    tensor = topology.expert_tensor_parallel_size or topology.tensor_model_parallel_size
    experts = tensor * topology.expert_model_parallel_size * topology.pipeline_model_parallel_size
    return math.lcm(topology.ranks_of_copy, experts)


def _does_not_divide(wish: Wish, method: str, recipes: list[SFTRecipe]) -> str:
    size, multiples = wish.seq_length, sorted({recipe.resolve().pad_seq_to_mult.value for recipe in recipes})
    if all(size % multiple for multiple in multiples):
        upper = -(-size // multiples[0]) * multiples[0]
        unit = multiples[0]
        return f"--seq-length is {size}; allowed: multiples of {unit}, which its ranks share evenly. Use {upper}."
    recipe = min(recipes, key=lambda sft: (sft.packing.packed_sequence_size, sft.parallelism.num_gpus or 1))
    unit, least = _unit(recipe), recipe.parallelism.num_gpus or 1
    return (
        f"--num-gpus is {wish.num_gpus}; allowed for {wish.model}, method {method}, at {size} tokens: multiples of "
        f"{unit} from {-(-least // unit) * unit}, as in {recipe.name} of the catalogue. Use one of these, or a shorter "
        "--seq-length."
    )


_COMMENTS: Mapping[str, str] = MappingProxyType(
    {
        "data.train": "a file, a folder, a glob or a list; .jsonl, .json, .csv, .tsv (or .gz, .zst), .parquet, .arrow",
        "data.validation": "held out by the data itself; or validation_fraction, of the training rows",
        "data.role_aliases": "names of roles in the data",
        "data.layout.messages": "the turns, in order, from columns in braces or a column of turns",
        "data.layout.tools": "tool schemas",
        "data.layout.chat_template_kwargs": "variables of the chat template",
        "data.layout.ignore": "identifiers, labels and copies, which are not read; other unread columns are reported",
        "data.validation_fraction": "fraction of the rows set aside for evaluation",
        "tokenizer.name_or_path": "a Hugging Face id or a folder; the tokenizer of the model",
        "preprocessing.loss_mode": "trained tokens: all assistant turns; or last_turn, or full",
        "preprocessing.message_weights": "turns that the data marks as untrained are not trained",
        "preprocessing.over_long": "conversations longer than a pack; or truncate, split, or error",
        "preprocessing.others": "settings for sources whose layout is of another kind",
        "packing.packed_sequence_size": "runtime tokens per pack; seq_length of the model",
        "model.recompute": "recompute whole layers in the backward pass to save memory",
        "schedule.num_epochs": "passes over the packs; train_iters follows from their number",
        "checkpoint.folder": "checkpoints of this run",
    }
)
_METHODS: Mapping[str, str] = MappingProxyType({"full": "Full training", "lora": "LoRA", "dora": "DoRA"})


def commented_yaml(
    recipe: SFTRecipe,
    origin: str,
    comments: Mapping[str, str] = MappingProxyType({}),
    detection: Detection | None = None,
) -> str:
    """Return the YAML text of a new recipe file; `origin` says where its topology comes from.

    `comments`, dotted path -> comment, replace the usual ones.
    """
    assert recipe.model is not None
    file, folder = f"{recipe.name}.yaml", f"artifacts/{recipe.name}"
    num_gpus, size = recipe.parallelism.num_gpus, recipe.packing.packed_sequence_size
    gpus = "1 GPU" if num_gpus == 1 else f"{num_gpus} GPUs"
    head = [
        YAML_HEADER,
        f"# {_METHODS[recipe.method.kind]} of {recipe.model.name} on {gpus} in packs of {size:,} tokens.",
        f"# Made by `bridgepack new`: {origin}.",
        f"# Next: bridgepack build {file} --output {folder}; bridgepack check {file} --artifact {folder}",
    ]
    layout = {"data.layout": f"{detection.entry.name}: {detection.entry.title}"} if detection else {}
    comments = {**_COMMENTS, **_own_comments(recipe), **layout, **comments}
    entries = written_values(recipe, keeps_null=False).items()
    body = [line for name, item in entries for line in block_lines(name, item, "  ", comments=comments, path=name)]
    return "\n".join([*head, *body]) + "\n"


def _own_comments(recipe: SFTRecipe) -> dict[str, str]:
    topology, size, kind = recipe.parallelism, recipe.packing.packed_sequence_size, recipe.preprocessing.kind
    assert topology.num_gpus is not None
    assert recipe.model is not None
    ranks = topology.ranks_of_copy
    documents = {
        "preprocessing.kind": "plain documents; every token is trained; or chat, or prompt_completion, or tokenized",
        "preprocessing.over_long": "documents longer than a pack become several sequences; or drop, truncate, or error",
    }
    base = "the architecture; weights come from checkpoint.pretrained"
    weights = "the model's weights in Megatron's format, as AutoBridge.import_ckpt writes it"
    if recipe.checkpoint.pretrained == recipe.model.name:
        weights = "the model's weights, which Megatron-Bridge reads as they are"
    return {
        "preprocessing.kind": f"or {', or '.join(name for name in PREPROCESSING_KINDS if name != kind)}",
        **(documents if kind == "text" else {}),
        "method.kind": f"or {', or '.join(name for name in _METHODS if name != recipe.method.kind)}",
        "model.name": base if "/" in recipe.model.name else f"a recipe of Megatron-Bridge: {base}",
        "parallelism.context_parallel_size": f"{size // topology.context_parallel_size:,} tokens per rank",
        "parallelism.num_gpus": f"data-parallel copies: {topology.num_gpus // ranks}, each on {ranks}",
        "batch.tokens_per_step": f"about {max(round((recipe.batch.tokens_per_step or 0) / size), 1):,} packs",
        "checkpoint.pretrained": weights,
    }


#: Token slots of an optimiser step.
TOKENS_PER_STEP = 1 << 19
_CHAT: Mapping[str, Any] = MappingProxyType({"kind": "chat", "loss_mode": "assistant", "over_long": "drop"})


def values_like(recipes_of_kind: Sequence[CatalogueEntry], wish: Wish) -> tuple[dict[str, Any], str]:
    """Return the values of the catalogue recipe that fits a wish, and their origin in words.

    Raises:
        ConfigError: none fits the GPUs, the length or the method.
    """
    name, recipe = starting_recipe(recipes_of_kind, wish)
    values = {name: value for name, value in written_values(recipe).items() if name != "artifact"}
    if "/" in wish.model:
        values["tokenizer"] = {**values["tokenizer"], "name_or_path": wish.model}
    elif wish.model.endswith("_config"):
        values["model"] = {**values["model"], "name": wish.model.removeprefix("bridge:")}
    return values, f"topology and settings from {name} in the catalogue"


def recipe_text(
    wish: Wish, values: Mapping[str, Any], origin: str, comments: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return the commented YAML text of a recipe with the settings of a wish and `values` for the other fields.

    `origin` and `comments` as for `commented_yaml`.

    Raises:
        ConfigError: the values contradict each other.
    """
    recipe = recipe_for(wish, values)
    recipe.resolve()
    names = ", ".join(dict.fromkeys(part.entry.name for part in wish.parts.values()))
    of_parts = {"data.train": f"each with its own layout: {names}"} if names else {}
    of_sets = {"data.validation": "the loss of each set is logged by its name"} if wish.sets else {}
    return commented_yaml(recipe, origin, {**of_parts, **of_sets, **comments}, wish.detection)


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
            "schedule": {"num_epochs": 1},
            "batch": {"tokens_per_step": TOKENS_PER_STEP},
            **values,
            "name": wish.name,
            "preprocessing": preprocessing_for(wish.detection, wish.layouts, values.get("preprocessing", _CHAT)),
            "data": {**data_for(wish.data, wish.detection, wish.parts), **_validation(wish)},
            "tokenizer": tokenizer,
            "packing": {**values.get("packing", {}), "packed_sequence_size": wish.seq_length},
            "parallelism": {**values.get("parallelism", {}), "num_gpus": wish.num_gpus},
            "method": {**values.get("method", {}), "kind": wish.kind},
            "checkpoint": {"pretrained": wish.weights or f"checkpoints/{weights}", "folder": f"runs/{wish.name}"},
        }
    )


def _validation(wish: Wish) -> dict[str, Any]:
    if wish.sets:
        return {"validation": sets_for(wish.sets)}
    if not wish.validation:
        return {"validation_fraction": wish.validation_fraction}
    return {"validation": wish.validation[0] if len(wish.validation) == 1 else wish.validation}


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
