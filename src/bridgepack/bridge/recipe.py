"""A recipe as settings in the host's paths, for the rules."""

from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from bridgepack.bridge.artifact_paths import packs_in, paths_of_artifact
from bridgepack.bridge.container import ALL_SECTIONS, check_section
from bridgepack.bridge.plain import put
from bridgepack.bridge.wiring import OVERRIDES, SPECS, Setting, host_settings
from bridgepack.config.errors import nearest_name
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.records import RunConfig

#: What the host wants as path objects; a recipe file has texts.
PATH_SETTINGS = frozenset({f"{SPECS}.packed_metadata_path"})
_PACK_PATHS = PATH_SETTINGS | {
    f"{SPECS}.packed_train_data_path",
    f"{SPECS}.packed_val_data_path",
    "dataset.dataset_root",
}
_TEXT_DATASET = "megatron.bridge.data.builders.gpt_sft.GPTSFTDatasetConfig"
_DIRECT_DATASET = "megatron.bridge.data.builders.direct_hf_sft.DirectHFSFTDatasetConfig"
#: What the dataset config holds beside what a recipe sets; its defaults.
_DATASET = {"hf_dataset": None, "hf_rewrite": False, "max_train_samples": None}


def config_of_recipe(recipe: SFTRecipe, *, place: str | None = None, artifact: Path | None = None) -> RunConfig:
    """Return a recipe's settings; what it does not decide is not stated.

    Args:
        recipe: the recipe.
        place: what the user named; by default the recipe's name.
        artifact: the packs that the run will read, where they are known: a folder, a file or a pattern. By default the
            recipe's own, once it is there: before the build nothing is said of paths.

    Raises:
        ConfigError: an override is no section of a ConfigContainer.
    """
    if artifact is None and recipe.artifact is not None and Path(recipe.artifact).exists():
        artifact = Path(recipe.artifact)
    is_offline = recipe.packing.mode == "offline"
    values: dict[str, Any] = {
        "dataset": {"_target_": _TEXT_DATASET if is_offline else _DIRECT_DATASET, **(_DATASET if is_offline else {})},
        "train": {"rampup_batch_size": None},
    }
    if recipe.method.kind == "full":
        values["peft"] = None
    if is_offline:
        values["dataset"]["offline_packing_specs"] = {"tokenizer_model_name": None}
    user_paths: dict[str, str] = {}
    for setting in host_settings(recipe, packs=packs_in(artifact) if artifact is not None else None):
        is_override = setting.field.startswith(f"{OVERRIDES}.")
        if setting.path in _PACK_PATHS and not is_override:
            continue
        if is_override:
            _check_override(setting.path, setting.value)
            *above, _ = accumulate(setting.path.split("."), "{}.{}".format)
            user_paths |= {path: f"{OVERRIDES}.{path}" for path in above}
        if setting.field:
            user_paths[setting.path] = setting.field
        put(values, setting.path, as_host_type(setting).value)
    if artifact is not None and is_offline:
        # an override may say itself where the packs lie
        dataset = values["dataset"]
        dataset.setdefault("dataset_root", str(artifact))
        for name, path in paths_of_artifact(artifact, has_validation=dataset["do_validation"]).items():
            dataset["offline_packing_specs"].setdefault(name, path)
    return RunConfig(
        values=values,
        is_complete=False,
        place=place or recipe.name,
        user_paths=user_paths,
        ignored=recipe.ignore,
        world_size=recipe.parallelism.num_gpus,
    )


def as_host_type(setting: Setting) -> Setting:
    """Return a setting of a recipe with a path object where the host wants one; null stays."""
    is_path = setting.path in PATH_SETTINGS and isinstance(setting.value, str)
    return replace(setting, value=Path(setting.value)) if is_path else setting


def recipe_field(config: RunConfig, path: str) -> str:
    """Return the field of the recipe that decides a path of the host; an override where it has none."""
    return config.user_paths.get(path, f"{OVERRIDES}.{path}")


def _check_override(path: str, value: Any) -> None:
    """Raise where the section of an override does not exist, or would become a plain value."""
    section, _, rest = path.partition(".")
    if not rest and section in ALL_SECTIONS:
        check_section(f"{OVERRIDES}.{section}", section, value)
    nearest = nearest_name(section, ALL_SECTIONS)
    if section not in ALL_SECTIONS and nearest:
        raise ConfigError(f"{OVERRIDES}.{section} is no section of a ConfigContainer. Did you mean {nearest}?")
