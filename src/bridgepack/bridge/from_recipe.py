"""A recipe as settings in the host's paths: what docs/megatron-bridge.md wires, plus the recipe's own overrides."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bridgepack import geometry
from bridgepack.bridge.artifact_paths import paths_of_artifact
from bridgepack.bridge.from_container import ALL_SECTIONS, check_section
from bridgepack.config.messages import nearest_name
from bridgepack.config.preprocessing import ChatPreprocessing, PromptCompletionPreprocessing
from bridgepack.config.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.records import RunConfig

OVERRIDES = "bridge_overrides"
_SPECS = "dataset.offline_packing_specs"
#: Deeper than any config of the host; a section that holds itself would be endless.
_MAX_DEPTH = 12
#: What the host wants as path objects; a recipe file has texts.
_PATHS = frozenset({f"{_SPECS}.packed_metadata_path"})
_SFT = "megatron.bridge.data.sft_processing"
_TOPOLOGY = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
    "sequence_parallel",
)
#: Path in the ConfigContainer -> field of a recipe.
RECIPE_FIELDS: Mapping[str, str] = {
    **{f"model.{name}": f"parallelism.{name}" for name in _TOPOLOGY},
    "dist.eval_context_parallel_size": "parallelism.eval_context_parallel_size",
    "model.seq_length": "packing.packed_sequence_size",
    "dataset.seq_length": "packing.packed_sequence_size",
    f"{_SPECS}.packed_sequence_size": "packing.packed_sequence_size",
    f"{_SPECS}.pad_seq_to_mult": "packing.pad_seq_to_mult",
    f"{_SPECS}.max_single_sequence_length": "packing.max_sequence_length",
    f"{_SPECS}.pad_cu_seqlens": "packing.pad_cu_seqlens",
    "dataset.seed": "packing.seed",
    "train.micro_batch_size": "batch.micro_batch_size",
    "train.global_batch_size": "batch.global_batch_size",
    "validation.eval_micro_batch_size": "batch.eval_micro_batch_size",
    "validation.eval_global_batch_size": "batch.eval_global_batch_size",
    "model.hf_model_id": "model.name",
    "tokenizer.tokenizer_model": "tokenizer.name_or_path",
}


def config_of_recipe(recipe: SFTRecipe, *, place: str | None = None, artifact: Path | None = None) -> RunConfig:
    """Return a recipe's settings; what it does not decide is not stated.

    Args:
        recipe: the recipe.
        place: what the user named; by default the recipe's name.
        artifact: the packs that the run will read, where they are known: a folder, a file or a pattern.

    Raises:
        ConfigError: an override is no section of a ConfigContainer.
    """
    values = _wired(recipe, artifact)
    overridden = dict(_leaves(recipe.bridge_overrides))
    for path, value in overridden.items():
        _check_override(path, value)
        _set(values, path, Path(value) if path in _PATHS and isinstance(value, str) else value)
    sections = {section for path in overridden for section in _sections_above(path)}
    user_paths = {**{path: f"{OVERRIDES}.{path}" for path in sections | overridden.keys()}, **RECIPE_FIELDS}
    user_paths |= {path: f"{OVERRIDES}.{path}" for path in overridden}
    return RunConfig(
        values=values,
        is_complete=False,
        place=place or recipe.name,
        user_paths=user_paths,
        ignored=recipe.ignore,
        world_size=recipe.parallelism.num_gpus,
    )


def recipe_field(config: RunConfig, path: str) -> str:
    """Return the field of the recipe that decides a path of the host; an override where it has none."""
    return config.user_paths.get(path, f"{OVERRIDES}.{path}")


def _wired(recipe: SFTRecipe, artifact: Path | None) -> dict[str, Any]:
    topology, packing, batch = recipe.parallelism, recipe.packing, recipe.batch
    size = packing.packed_sequence_size
    has_validation = recipe.data.validation is not None or recipe.data.validation_fraction > 0
    specs = {
        "_target_": "megatron.bridge.data.packing.config.PackedSequenceSpecs",
        "packed_sequence_size": size,
        "pad_seq_to_mult": packing.pad_seq_to_mult or _derived_multiple(recipe),
        "max_single_sequence_length": packing.max_sequence_length,
        "pad_cu_seqlens": packing.pad_cu_seqlens,
        "tokenizer_model_name": None,
    }
    if artifact is not None:
        specs |= paths_of_artifact(artifact, has_validation=has_validation)
    return {
        "model": {
            "seq_length": size,
            **{name: getattr(topology, name) for name in _TOPOLOGY},
            "calculate_per_token_loss": True,
            **({"hf_model_id": recipe.model.name} if recipe.model else {}),
        },
        "ddp": {"average_in_collective": False},
        "dist": {"eval_context_parallel_size": topology.eval_context_parallel_size},
        "dataset": {
            "_target_": "megatron.bridge.data.builders.gpt_sft.GPTSFTDatasetConfig",
            "seq_length": size,
            "seed": packing.seed,
            **({"dataset_root": str(artifact)} if artifact is not None else {}),
            "hf_dataset": None,
            "hf_rewrite": False,
            "enable_offline_packing": True,
            "offline_packing_specs": specs,
            "dataset_kwargs": {"pad_to_max_length": True},
            "dataloader_type": "batch",
            "do_validation": has_validation,
            "do_test": False,
            "max_train_samples": None,
            "preprocessing": _preprocessing(recipe),
        },
        "train": {
            "micro_batch_size": batch.micro_batch_size,
            "global_batch_size": batch.global_batch_size,
            "rampup_batch_size": None,
        },
        "validation": {
            "eval_micro_batch_size": batch.eval_micro_batch_size,
            "eval_global_batch_size": batch.eval_global_batch_size,
        },
        "tokenizer": {"tokenizer_type": "HuggingFaceTokenizer", "tokenizer_model": recipe.tokenizer.name_or_path},
    }


def _derived_multiple(recipe: SFTRecipe) -> int:
    topology = recipe.parallelism
    return geometry.pad_seq_to_mult(
        context_parallel_size=topology.context_parallel_size,
        tensor_model_parallel_size=topology.tensor_model_parallel_size,
        sequence_parallel=topology.sequence_parallel,
        eval_context_parallel_size=topology.eval_context_parallel_size,
    )


def _preprocessing(recipe: SFTRecipe) -> dict[str, Any] | None:
    preprocessing = recipe.preprocessing
    if isinstance(preprocessing, ChatPreprocessing):
        return {"_target_": f"{_SFT}.ChatSFTPreprocessingConfig", "loss_mode": preprocessing.loss_mode}
    if isinstance(preprocessing, PromptCompletionPreprocessing):
        return {"_target_": f"{_SFT}.PromptCompletionSFTPreprocessingConfig", "loss_mode": preprocessing.loss_mode}
    return None


def _check_override(path: str, value: Any) -> None:
    """Accept an override.

    Raises:
        ConfigError: its section does not exist, or would become a plain value.
    """
    section, _, rest = path.partition(".")
    if not rest and section in ALL_SECTIONS:
        check_section(f"{OVERRIDES}.{section}", section, value)
    nearest = nearest_name(section, ALL_SECTIONS)
    if section not in ALL_SECTIONS and nearest:
        raise ConfigError(f"{OVERRIDES}.{section} is no section of a ConfigContainer. Did you mean {nearest}?")


def _sections_above(path: str) -> Iterator[str]:
    """Yield the paths above a path: a.b.c -> a.b, a."""
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def _leaves(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted path, value); an empty mapping is a value.

    Raises:
        ConfigError: sections lie in each other without end, or deeper than any config of the host.
    """
    if prefix.count(".") > _MAX_DEPTH:
        raise ConfigError(f"{OVERRIDES}.{prefix[:60]}... lies more than {_MAX_DEPTH} sections deep. Remove it.")
    for name, value in section.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _set(values: dict[str, Any], path: str, value: Any) -> None:
    *sections, leaf = path.split(".")
    node = values
    for section in sections:
        if not isinstance(node.get(section), dict):
            node[section] = {}
        node = node[section]
    node[leaf] = copy.deepcopy(value)
