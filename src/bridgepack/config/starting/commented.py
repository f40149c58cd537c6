"""Writes a new recipe as YAML with comments."""

from collections.abc import Mapping
from types import MappingProxyType

from bridgepack.config.editing.yaml_values import block_lines
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.write import YAML_HEADER, written_values

_COMMENTS: Mapping[str, str] = MappingProxyType(
    {
        "data.train": "a file, a folder, a glob or a list; .jsonl[.gz|.zst], .json, .parquet, .arrow",
        "data.validation_fraction": "fraction of the rows set aside for evaluation",
        "tokenizer.name_or_path": "a Hugging Face id or a folder; the tokenizer of the model",
        "preprocessing.kind": "or prompt_completion, or tokenized",
        "preprocessing.loss_mode": "trained tokens: all assistant turns; or last_turn, or full",
        "preprocessing.over_long": "conversations longer than a pack; or truncate, split, or error",
        "packing.packed_sequence_size": "runtime tokens per pack; seq_length of the model",
        "model.recompute": "recompute whole layers in the backward pass to save memory",
        "schedule.num_epochs": "passes over the packs; train_iters follows from their number",
        "checkpoint.folder": "checkpoints of this run",
    }
)
_METHODS: Mapping[str, str] = MappingProxyType({"full": "Full training", "lora": "LoRA", "dora": "DoRA"})


def commented_yaml(recipe: SFTRecipe, origin: str) -> str:
    """Return the YAML text of a new recipe file; `origin` says where its topology comes from."""
    assert recipe.model is not None
    file, folder = f"{recipe.name}.yaml", f"artifacts/{recipe.name}"
    num_gpus, size = recipe.parallelism.num_gpus, recipe.packing.packed_sequence_size
    gpus = "1 GPU" if num_gpus == 1 else f"{num_gpus} GPUs"
    head = [
        YAML_HEADER,
        f"# {_METHODS[recipe.method.kind]} of {recipe.model.name} on {gpus} in packs of {size:,} tokens.",
        f"# Made by `bridgepack recipes new`: {origin}.",
        f"# Next: bridgepack build {file} --output {folder}; bridgepack check {file} --artifact {folder}",
    ]
    comments = {**_COMMENTS, **_own_comments(recipe)}
    entries = written_values(recipe, keeps_null=False).items()
    body = [line for name, item in entries for line in block_lines(name, item, "  ", comments=comments, path=name)]
    return "\n".join([*head, *body]) + "\n"


def _own_comments(recipe: SFTRecipe) -> dict[str, str]:
    """Return field path -> comment with names and numbers of this recipe."""
    topology, size = recipe.parallelism, recipe.packing.packed_sequence_size
    assert topology.num_gpus is not None
    assert recipe.model is not None
    ranks = topology.ranks_of_copy
    base = "the architecture; weights come from checkpoint.pretrained"
    weights = "the model's weights in Megatron's format, as AutoBridge.import_ckpt writes it"
    return {
        "method.kind": f"or {', or '.join(kind for kind in _METHODS if kind != recipe.method.kind)}",
        "model.name": base if "/" in recipe.model.name else f"a recipe of Megatron-Bridge: {base}",
        "parallelism.context_parallel_size": f"{size // topology.context_parallel_size:,} tokens per rank",
        "parallelism.num_gpus": f"data-parallel copies: {topology.num_gpus // ranks}, each on {ranks}",
        "batch.tokens_per_step": f"about {max(round((recipe.batch.tokens_per_step or 0) / size), 1):,} packs",
        "checkpoint.pretrained": weights,
    }
