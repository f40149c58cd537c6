"""Settings of a recipe's run under the host's paths, for the rules: those of `to_bridge`, without the host."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import accumulate
from pathlib import Path
from typing import Any

from bridgepack.bridge.adopting.corrections import corrected
from bridgepack.bridge.artifact_paths import packs_in, paths_of_artifact
from bridgepack.bridge.bases import (
    LOADER_FIELDS,
    REQUIRED_FIELD,
    all_sections,
    as_held,
    base_of,
    hint_for_no_recipe,
    is_left_out,
    made,
    new_section,
    precision_named,
    why_model_unknown,
)
from bridgepack.bridge.container import check_section
from bridgepack.bridge.inherited import as_host_type, is_decided, settings_over
from bridgepack.bridge.plain import put, value_at
from bridgepack.bridge.wiring import OVERRIDES, SPECS, Packs, Setting, host_settings
from bridgepack.bridge.wiring.data import EXCHANGE
from bridgepack.bridge.wiring.training import BOOKKEEPING
from bridgepack.config.errors import did_you_mean, nearest_name, shown
from bridgepack.config.recipe.data import as_sources, path_of
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.records import Change, LostOverride, RunConfig
from bridgepack.rules.engine.context import NO_PACKS

_PACK_PATHS = frozenset(
    {
        f"{SPECS}.packed_metadata_path",
        f"{SPECS}.packed_train_data_path",
        f"{SPECS}.packed_val_data_path",
        "dataset.dataset_root",
    }
)
_TEXT_DATASET, _DIRECT_DATASET = "GPTSFTDatasetConfig", "DirectHFSFTDatasetConfig"
_ADAPTERS = {"lora": "LoRA", "dora": "DoRA"}
#: Settings that depend on the number of packs.
_LENGTH = ("train.num_epochs", "train.train_iters", "scheduler.lr_warmup_fraction")
#: Likeness of two names, from 0 to 1, from which one is the other misspelt.
_BEYOND_DOUBT = 0.9
_FROM_FILES = "Megatron-Bridge computes it from the data; check the ConfigContainer"
_NOT_SAID = dict.fromkeys(("dataset.source", "dataset.validation_source", "dataset.test_source"), _FROM_FILES)


def config_of_recipe(
    recipe: SFTRecipe, *, place: str | None = None, artifact: Path | None = None, is_newest: bool = True
) -> RunConfig:
    """Return the settings of a recipe's run: the recipe's, over those of its base.

    Settings that are unknown without the host or without packs are listed, so that rules on them are skipped.

    Args:
        recipe: the recipe.
        place: name of the recipe for messages (default: the recipe's name).
        artifact: the packs of the run: a folder, a file or a pattern (default: the recipe's artifact if it
            exists). Before the build the paths are unknown.
        is_newest: whether the newest host will run it; the bases of older hosts are unknown.

    Raises:
        ConfigError: an override is not in a section of a ConfigContainer.
    """
    if artifact is None and recipe.artifact is not None and Path(recipe.artifact).exists():
        artifact = Path(recipe.artifact)
    packs = packs_in(artifact) if artifact is not None else None
    values, settings = _started(recipe, packs) if is_newest else _stated(recipe, packs)
    unknown = _NOT_SAID | ({} if "model" in values else {"model": why_model_unknown(recipe)})
    user_paths, lost = _write_settings(values, settings, recipe)
    if recipe.packing.mode == "offline":
        unknown |= _put_pack_paths(values, artifact, settings)
        for path in _LENGTH if packs is None and recipe.schedule.train_iters is None else ():
            if not _is_override(settings.get(path)):
                _forget(values, path)
                unknown[path] = NO_PACKS
    config = RunConfig(
        values=values,
        builds_packs=recipe.packing.mode == "offline",
        no_recipe=(recipe.model.name, hint) if recipe.model and (hint := hint_for_no_recipe(recipe)) else None,
        lost_overrides=lost if is_newest else (),
        is_complete=is_newest,
        unknown=unknown if is_newest else {},
        place=place or recipe.name,
        user_paths=user_paths,
        ignored=recipe.ignore,
        world_size=recipe.parallelism.num_gpus,
    )
    if is_newest:
        corrected(
            values,
            lambda: config,
            lambda change: _write(values, change.path, change.value),
            may_change=lambda path: not is_decided(path, settings),
            world_size=recipe.parallelism.num_gpus,
        )
    return config


def _forget(values: dict[str, Any], path: str) -> None:
    section, _, name = path.partition(".")
    values[section].pop(name, None)


def _started(recipe: SFTRecipe, packs: Packs | None) -> tuple[dict[str, Any], dict[str, Setting]]:
    values = base_of(recipe)
    settings = settings_over(values, recipe, packs, precision_named(recipe.precision.recipe))
    size, base = recipe.packing.packed_sequence_size, values["dataset"] or {}
    loader = {name: base[name] for name in LOADER_FIELDS if name in base}
    if recipe.packing.mode == "offline":
        specs = made("PackedSequenceSpecs", packed_sequence_size=size)
        values["dataset"] = made(_TEXT_DATASET, seq_length=size, offline_packing_specs=specs, **loader)
    elif str(base.get("_target_")).endswith(f".{_DIRECT_DATASET}"):
        values["dataset"] = {**base, "seq_length": size}
    else:
        values["dataset"] = made(_DIRECT_DATASET, seq_length=size, **loader)
    kind = _ADAPTERS.get(recipe.method.kind)
    if kind is None:
        values["peft"] = None
    elif not str((values["peft"] or {}).get("_target_")).endswith(f".{kind}"):
        values["peft"] = made(kind)
    if values["tokenizer"].get("tokenizer_model") != recipe.tokenizer.name_or_path:
        values["tokenizer"] = made("TokenizerConfig")
    return values, settings


def _stated(recipe: SFTRecipe, packs: Packs | None) -> tuple[dict[str, Any], dict[str, Setting]]:
    """Return the classes of the recipe's sections and its settings, without a base."""
    is_offline = recipe.packing.mode == "offline"
    dataset = {"hf_dataset": None, "hf_rewrite": False, "max_train_samples": None} if is_offline else {}
    kind = f"megatron.bridge.data.builders.{_TEXT_DATASET if is_offline else _DIRECT_DATASET}"
    values: dict[str, Any] = {"dataset": {"_target_": kind, **dataset}, "train": {"rampup_batch_size": None}}
    if is_offline:
        values["dataset"]["offline_packing_specs"] = {"tokenizer_model_name": None}
    if recipe.model is not None:
        values["model"] = {"hf_model_id": recipe.model.name}  # tells the family, also where it is a recipe's name
    if recipe.method.kind == "full":
        values["peft"] = None
    return values, {setting.path: as_host_type(setting) for setting in host_settings(recipe, packs=packs)}


def _write_settings(
    values: dict[str, Any], settings: Mapping[str, Setting], recipe: SFTRecipe
) -> tuple[dict[str, str], tuple[LostOverride, ...]]:
    """Write settings, except the paths of packs, into plain values.

    Returns:
        path -> field of the recipe, and the overrides of fields that the host does not have.
    """
    user_paths = {**BOOKKEEPING, **EXCHANGE}
    lost: list[LostOverride] = []
    for setting in settings.values():
        if setting.path in _PACK_PATHS and not _is_override(setting):
            continue
        if _is_override(setting):
            _check_override(setting.path, setting.value)
            lost += _lost(values, setting.path, settings, recipe)
            *above, _ = accumulate(setting.path.split("."), "{}.{}".format)
            user_paths |= {path: f"{OVERRIDES}.{path}" for path in above}
        if setting.field:
            user_paths[setting.path] = setting.field
        _write(values, setting.path, setting.value)
    return user_paths, tuple(lost)


def _lost(
    values: Mapping[str, Any], path: str, settings: Mapping[str, Setting], recipe: SFTRecipe
) -> Iterator[LostOverride]:
    """Yield the override of a path that leads nowhere; what is no object of the host may hold any name."""
    *sections, leaf = path.split(".")
    node: Any = {**dict.fromkeys(all_sections()), **values, "_target_": "ConfigContainer"}
    for depth, name in enumerate((*sections, leaf)):
        above = ".".join(sections[:depth])
        if above == "mixed_precision" and isinstance(node, str):
            node = precision_named(recipe.precision.recipe)
        if node is None and above == "peft":
            yield LostOverride(path=path, found="below peft, which is null", allowed="with method.kind lora or dora")
        if node is None and above in values:
            node, required = new_section(above), REQUIRED_FIELD.get(above)
            if required and f"{above}.{required}" not in settings:
                yield LostOverride(path=path, found=f"below {above}, which is null", allowed=f"with {above}.{required}")
        if isinstance(node, (bool, int, float, str)):
            found, allowed = f"below {above}, a plain value, {shown(node)}", f"{above} as a whole"
            yield LostOverride(path=f"{above}.{name}", found=found, allowed=allowed)
        if not isinstance(node, Mapping) or is_left_out(f"{above}.{name}"):
            return
        if "_target_" in node and (name not in node or name.startswith("_")):
            yield _lost_name(node, above, name, settings, value_at(recipe.bridge_overrides, above))
            return
        node = node.get(name)


def _lost_name(
    node: Mapping[str, Any], above: str, name: str, settings: Mapping[str, Setting], written: Any
) -> LostOverride:
    known = sorted(field for field in node if not field.startswith("_"))
    allowed = f"one of its fields. {did_you_mean(name, known, f'It has: {", ".join(known[:20])}.')}"
    meant = get_close_matches(name, known, n=2, cutoff=_BEYOND_DOUBT)
    change = None
    if len(meant) == 1 and isinstance(written, Mapping) and not is_decided(f"{above}.{meant[0]}", settings):
        section = {meant[0] if key == name else key: value for key, value in written.items()}
        change = Change(path=above, value=section, why=f"{name} is a misspelt {meant[0]}")
    found, path = f"no field of {str(node['_target_']).rpartition('.')[2]}", f"{above}.{name}".removeprefix(".")
    return LostOverride(path=path, found=found, allowed=allowed, change=change)


def _is_override(setting: Setting | None) -> bool:
    return setting is not None and setting.field.startswith(f"{OVERRIDES}.")


def _write(values: dict[str, Any], path: str, value: Any) -> None:
    """Write a value as the host does: a missing section is created, an object gets its class defaults.

    An empty section does not change an existing one.
    """
    if value == {} and isinstance(value_at(values, path), Mapping):
        return
    section, _, rest = path.partition(".")
    if rest and section in values and values[section] is None:
        values[section] = new_section(section)
    put(values, path, as_held(path, value))


def _put_pack_paths(values: dict[str, Any], artifact: Path | None, settings: dict[str, Setting]) -> dict[str, str]:
    """Write the paths of packs, except those set by overrides; return path -> reason of the unknown ones."""
    dataset = values["dataset"]
    found: dict[str, Any] = {}
    if artifact is not None:
        paths = paths_of_artifact(artifact, has_validation=dataset["do_validation"])
        found = {"dataset.dataset_root": str(artifact), **{f"{SPECS}.{name}": path for name, path in paths.items()}}
    unknown = {}
    for path in _PACK_PATHS:
        holder = dataset if path == "dataset.dataset_root" else dataset["offline_packing_specs"]
        if _is_override(settings.get(path)) or not isinstance(holder, dict):
            continue
        if path in found:
            put(values, path, found[path])
        else:
            unknown[path] = NO_PACKS if artifact is None else "the packs do not tell it"
            holder.pop(path.rpartition(".")[2], None)
    return unknown


def inputs_of(recipe: SFTRecipe) -> tuple[tuple[str, str], ...]:
    """Return (field, path or pattern) of every local file and folder that a build reads."""
    sources = [
        (f"data.{split}", path_of(one))
        for split in ("train", "validation")
        for one in as_sources(getattr(recipe.data, split))
    ]
    files = [(field, path) for field, path in sources if path is not None and "://" not in path]
    name, template = recipe.tokenizer.name_or_path, recipe.tokenizer.chat_template
    is_folder = Path(name).is_absolute() or name.startswith((".", "~")) or (Path(name).parent.is_dir() and "/" in name)
    tokenizer = [("tokenizer.name_or_path", name)] if is_folder else []
    return (*files, *tokenizer, *([("tokenizer.chat_template", template)] if template else []))


def recipe_field(config: RunConfig, path: str) -> str:
    """Return the recipe's field for a path of the host, or an override if there is no field."""
    return config.user_paths.get(path, f"{OVERRIDES}.{path}")


def _check_override(path: str, value: Any) -> None:
    section, _, rest = path.partition(".")
    if not rest and section in all_sections():
        check_section(f"{OVERRIDES}.{section}", section, value)
    nearest = nearest_name(section, all_sections())
    if section not in all_sections() and nearest:
        raise ConfigError(f"{OVERRIDES}.{section} is no section of a ConfigContainer. Did you mean {nearest}?")
