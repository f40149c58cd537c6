"""Settings of a recipe's run under the host's paths, for the rules: those of `to_bridge`, without the host."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from bridgepack.bridge.adopting.corrections import apply_changes
from bridgepack.bridge.artifact_paths import packs_in, paths_of_artifact
from bridgepack.bridge.bases import (
    LOADER_FIELDS,
    base_of,
    hint_for_no_recipe,
    new_section,
    why_model_unknown,
)
from bridgepack.bridge.inherited import is_decided, settings_over
from bridgepack.bridge.model_folder import read_model_folder
from bridgepack.bridge.plain import put, value_at
from bridgepack.bridge.refusing.overrides import refused_path, why_not_kept
from bridgepack.bridge.refusing.recipes import models, readings
from bridgepack.bridge.shipped import is_shipped_model
from bridgepack.bridge.wiring import ONE_TENSOR_RANK, OVERRIDES, SPECS, Packs, Setting, derived_setting
from bridgepack.config.installed import installed_version
from bridgepack.config.recipe.data import as_sources, path_of
from bridgepack.config.recipe.host_paths import PACK_PATHS, TRAIN_PATH, fields_of
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.host import HostRelease
from bridgepack.host.names import canonical_name, move_to_canonical_names
from bridgepack.records import Refusal, RunConfig
from bridgepack.rules.judging.context import NO_PACKS

_PACK_PATHS = frozenset({*PACK_PATHS, "dataset.dataset_root"})
_TEXT_DATASET, _DIRECT_DATASET = "GPTSFTDatasetConfig", "DirectHFSFTDatasetConfig"
_PRECISION, _SEQUENCE = "mixed_precision", "model.sequence_parallel"
_ADAPTERS = {"lora": "LoRA", "dora": "DoRA"}
#: Settings that depend on the number of packs.
_LENGTH = ("train.num_epochs", "train.train_iters", "scheduler.lr_warmup_fraction")
_FROM_FILES = "Megatron-Bridge computes it from the data; check the ConfigContainer"
_NOT_SAID = dict.fromkeys(("dataset.source", "dataset.validation_source", "dataset.test_source"), _FROM_FILES)


def config_of_recipe(recipe: SFTRecipe, *, place: str | None = None, artifact: Path | None = None) -> RunConfig:
    """Return the settings of a recipe's run: the recipe's, over those of its base.

    Settings that are unknown without the host or without packs are listed, so that rules on them are skipped.

    Args:
        recipe: the recipe.
        place: name of the recipe for messages (default: the recipe's name).
        artifact: folder, file or pattern of the packs (default: the recipe's if it exists); without, paths are unknown.

    Raises:
        ConfigError: overrides nest too deep.
    """
    if artifact is None and recipe.artifact is not None and Path(recipe.artifact).exists():
        artifact = Path(recipe.artifact)
    packs = packs_in(artifact) if artifact is not None and recipe.packing.mode == "offline" else None
    return run_of_recipe(recipe, packs, place=place, artifact=artifact).config


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeRun:
    """A recipe's run."""

    config: RunConfig
    settings: tuple[Setting, ...]  #: all that are written over the base, as `to_bridge` writes them


def run_of_recipe(
    recipe: SFTRecipe, packs: Packs | None, *, place: str | None = None, artifact: Path | None = None
) -> RecipeRun:
    """Return a recipe's run on some packs; arguments as for `config_of_recipe`.

    Raises:
        ConfigError: overrides nest too deep.
    """
    reads_packs = recipe.packing.mode == "offline"
    values, settings = _starting_values(recipe, packs)
    refusals = [*models(recipe, values), *readings(recipe)]
    unknown_paths = _NOT_SAID | _unknown_model(values, recipe)
    user_paths, override_refusals = _write_settings(values, settings, recipe)
    if reads_packs:
        unknown_paths |= _put_pack_paths(values, artifact, settings)
        is_unknown = packs is None and settings["train.train_iters"].value is None
        unknown_paths |= _drop_length(values, settings) if is_unknown else {}
    config = RunConfig(
        values=values,
        builds_packs=reads_packs,
        no_recipe=(recipe.model.name, hint) if recipe.model and (hint := hint_for_no_recipe(recipe)) else None,
        refusals=(*refusals, *override_refusals),
        is_complete=True,
        unknown=unknown_paths,
        bridge_version=recipe.bridge_version or installed_version(),
        place=place or recipe.name,
        user_paths=user_paths,
        derived=frozenset(path for path, setting in settings.items() if setting.origin == "derived"),
        recipe_fields=fields_of(recipe),
        ignored=recipe.ignore,
        world_size=recipe.parallelism.num_gpus,
    )
    changes = apply_changes(
        lambda path: value_at(values, path),
        lambda: config,
        lambda change: _write(values, recipe.release, change.path, change.value),
        may_change=lambda path: not is_decided(path, settings),
        world_size=recipe.parallelism.num_gpus,
    )
    corrections = {change.path: derived_setting(change.path, change.value, change.why) for change in changes}
    return RecipeRun(config=config, settings=tuple((settings | corrections).values()))


def _unknown_model(values: dict[str, Any], recipe: SFTRecipe) -> dict[str, str]:
    """Return why the model's settings are unknown, if so, and state its id on the hub, which tells the family."""
    if "model" in values:
        return {}
    if recipe.model is not None and not is_shipped_model(recipe.model):
        path = Path(recipe.model.name)
        settings = read_model_folder(path).settings if path.is_dir() else {"hf_model_id": recipe.model.name}
        values |= {"model": dict(settings)} if settings else {}
    return {"model": why_model_unknown(recipe)}


def _starting_values(recipe: SFTRecipe, packs: Packs | None) -> tuple[dict[str, Any], dict[str, Setting]]:
    values, facts = base_of(recipe), recipe.release.facts
    settings = settings_over(values, recipe, packs, facts.precision_by_name(recipe.precision.recipe))
    size, base = recipe.packing.packed_sequence_size, values["dataset"] or {}
    loader = {name: base[name] for name in LOADER_FIELDS if name in base}
    if recipe.packing.mode == "offline":
        specs = facts.new_object("PackedSequenceSpecs", packed_sequence_size=size)
        values["dataset"] = facts.new_object(_TEXT_DATASET, seq_length=size, offline_packing_specs=specs, **loader)
    elif str(base.get("_target_")).endswith(f".{_DIRECT_DATASET}"):
        values["dataset"] = {**base, "seq_length": size}
    else:
        values["dataset"] = facts.new_object(_DIRECT_DATASET, seq_length=size, **loader)
    kind = _ADAPTERS.get(recipe.method.kind)
    if kind is None:
        values["peft"] = None
    elif not str((values["peft"] or {}).get("_target_")).endswith(f".{kind}"):
        values["peft"] = facts.new_object(kind)
    if values["tokenizer"].get("tokenizer_model") != recipe.tokenizer.name_or_path:
        values["tokenizer"] = facts.new_object("TokenizerConfig")
    return move_to_canonical_names(values, recipe.release)[0], settings


def _write_settings(
    values: dict[str, Any], settings: Mapping[str, Setting], recipe: SFTRecipe
) -> tuple[dict[str, str], tuple[Refusal, ...]]:
    """Write settings, except the paths of packs and refused overrides, into plain values.

    Returns:
        path -> field of the recipe, and the refused overrides.
    """
    user_paths: dict[str, str] = {}
    refusals: list[Refusal] = []
    overrides: list[Setting] = []
    for setting in settings.values():
        if setting.path in _PACK_PATHS and not _is_override(setting):
            continue
        if setting.field:
            user_paths[setting.path] = setting.field
        if _is_override(setting):
            *above, _ = accumulate(setting.field.removeprefix(f"{OVERRIDES}.").split("."), "{}.{}".format)
            user_paths |= {canonical_name(recipe.release, path): f"{OVERRIDES}.{path}" for path in above}
            refusal = refused_path(values, setting, settings, recipe)
            if refusal is not None:
                refusals.append(refusal)
                continue
            overrides.append(setting)
        _write(values, recipe.release, setting.path, setting.value)
    if (setting := settings[_SEQUENCE]).because == ONE_TENSOR_RANK:
        fix = "Set it to false."
        refusals.append(Refusal(kind="no_effect", path=_SEQUENCE, found="true", allowed="false", fix=fix))
    lost_later = (why_not_kept(values, setting, recipe.release.facts) for setting in overrides)
    return user_paths, (*refusals, *filter(None, lost_later))


def _is_override(setting: Setting | None) -> bool:
    return setting is not None and setting.field.startswith(f"{OVERRIDES}.")


def _write(values: dict[str, Any], release: HostRelease, path: str, value: Any) -> None:
    """Write a value as the host does: a missing section is created, an object gets its class defaults.

    An empty section does not change an existing one; a field of a precision that has a name keeps its other fields.
    """
    if value == {} and (path == _PRECISION or value_at(values, path) is not None):
        return
    section, _, field = path.partition(".")
    if field and section in values and values[section] is None:
        values[section] = new_section(release, section)
    if field and section == _PRECISION and isinstance(values.get(section), str):
        values[section] = copy.deepcopy(release.facts.registered_precision(values[section]) or values[section])
    put(values, path, release.facts.held_value(path, value))


def _put_pack_paths(values: dict[str, Any], artifact: Path | None, settings: dict[str, Setting]) -> dict[str, str]:
    """Write the paths of packs, except those set by overrides; return path -> reason of the unknown ones."""
    dataset = values["dataset"]
    pack_values: dict[str, Any] = {}
    if artifact is not None:
        paths = paths_of_artifact(artifact, has_validation=dataset["do_validation"])
        pack_values = {
            "dataset.dataset_root": str(artifact),
            **{f"{SPECS}.{name}": path for name, path in paths.items()},
        }
    unknown_paths = {}
    names_packs = _is_override(settings.get(TRAIN_PATH)) and settings[TRAIN_PATH].value is not None
    for path in _PACK_PATHS:
        holder = dataset if path == "dataset.dataset_root" else dataset["offline_packing_specs"]
        is_null = artifact is None and names_packs and path not in settings
        if is_null or _is_override(settings.get(path)) or not isinstance(holder, dict):
            continue
        if path in pack_values:
            put(values, path, pack_values[path])
        else:
            unknown_paths[path] = NO_PACKS if artifact is None else "the packs do not tell it"
            holder.pop(path.rpartition(".")[2], None)
    return unknown_paths


def _drop_length(values: dict[str, Any], settings: Mapping[str, Setting]) -> dict[str, str]:
    """Remove settings that depend on the number of packs, except overrides; return path -> reason."""
    paths = [path for path in _LENGTH if not _is_override(settings.get(path))]
    for path in paths:
        section, _, name = path.partition(".")
        values[section].pop(name, None)
    return dict.fromkeys(paths, NO_PACKS)


def inputs_of(recipe: SFTRecipe) -> tuple[tuple[str, str], ...]:
    """Return (field, path or pattern) of every local file and folder that a build reads."""
    sources = [
        (f"data.{split}", path_of(source))
        for split in ("train", "validation")
        for source in as_sources(getattr(recipe.data, split))
    ]
    files = [(field, path) for field, path in sources if path is not None and "://" not in path]
    name, template = recipe.tokenizer.name_or_path, recipe.tokenizer.chat_template
    is_folder = Path(name).is_absolute() or name.startswith((".", "~")) or (Path(name).parent.is_dir() and "/" in name)
    tokenizer = [("tokenizer.name_or_path", name)] if is_folder else []
    return (*files, *tokenizer, *([("tokenizer.chat_template", template)] if template else []))
