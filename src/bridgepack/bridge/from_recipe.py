"""A recipe as settings in the host's paths, for the rules."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from bridgepack.config.recipe import SFTRecipe
from bridgepack.config.wiring import OVERRIDES, SPECS, Packs, host_settings
from bridgepack.records import RunConfig

#: What the host wants as path objects; a recipe file has texts.
PATH_SETTINGS = frozenset({f"{SPECS}.packed_metadata_path"})
_TEXT_DATASET = "megatron.bridge.data.builders.gpt_sft.GPTSFTDatasetConfig"
_DIRECT_DATASET = "megatron.bridge.data.builders.direct_hf_sft.DirectHFSFTDatasetConfig"
#: What the dataset config holds beside what a recipe sets; its defaults.
_DATASET = {"hf_dataset": None, "hf_rewrite": False, "max_train_samples": None}


def config_of_recipe(recipe: SFTRecipe, *, place: str | None = None, packs: Packs | None = None) -> RunConfig:
    """Return a recipe's settings; what it does not decide is not stated.

    Args:
        recipe: the recipe.
        place: what the user named; by default the recipe's name.
        packs: what the run will read, where it is known.
    """
    settings = host_settings(recipe, packs=packs)
    is_offline = recipe.packing.mode == "offline"
    values: dict[str, Any] = {
        "dataset": {"_target_": _TEXT_DATASET if is_offline else _DIRECT_DATASET, **(_DATASET if is_offline else {})},
        "train": {"rampup_batch_size": None},
    }
    if recipe.method.kind == "full":
        values["peft"] = None
    if is_offline:
        values["dataset"]["offline_packing_specs"] = {"tokenizer_model_name": None}
    for setting in settings:
        value = setting.value
        _set(values, setting.path, Path(value) if setting.path in PATH_SETTINGS and isinstance(value, str) else value)
    return RunConfig(
        values=values,
        is_complete=False,
        place=place or recipe.name,
        user_paths={setting.path: setting.field for setting in settings if setting.field},
        ignored=recipe.ignore,
        world_size=recipe.parallelism.num_gpus,
    )


def recipe_field(config: RunConfig, path: str) -> str:
    """Return the field of the recipe that decides a path of the host; an override where it has none."""
    return config.user_paths.get(path, f"{OVERRIDES}.{path}")


def _set(values: dict[str, Any], path: str, value: Any) -> None:
    *sections, leaf = path.split(".")
    node = values
    for section in sections:
        if not isinstance(node.get(section), dict):
            node[section] = {}
        node = node[section]
    node[leaf] = copy.deepcopy(value)
