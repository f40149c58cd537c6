"""Converts a recipe into a ConfigContainer of the installed Megatron-Bridge for `finetune(config, forward_step)`."""

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridgepack.bridge.adopting.corrections import correct, findings_on
from bridgepack.bridge.artifact_paths import folder_of_packs, packs_in
from bridgepack.bridge.bases import LOADER_FIELDS
from bridgepack.bridge.container import config_of_container
from bridgepack.bridge.imports import import_by_name, import_host
from bridgepack.bridge.inherited import is_decided, settings_over
from bridgepack.bridge.live import place_in
from bridgepack.bridge.plain import plain_values
from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.bridge.refusing.recipes import builder_of, refuse_other_packs
from bridgepack.bridge.refusing.refusals import OF_RECIPE, OF_TOPOLOGY, REFUSED, error_of, refusals_of
from bridgepack.bridge.shipped import installed_release, is_shipped_model, load_shipped, named_precision
from bridgepack.bridge.wiring import SPECS, Packs, Setting, derived_setting
from bridgepack.bridge.writing.assign import assign
from bridgepack.config.errors import quote
from bridgepack.config.recipe.data import DEFAULT_SPLIT, DataSource, Source, as_sources, path_of
from bridgepack.config.recipe.recipe import SFTRecipe, checked_object
from bridgepack.config.recipe.training import AdapterMethod, ModelConfig
from bridgepack.errors import ConfigError
from bridgepack.host import HostRelease
from bridgepack.host.names import class_in, name_in
from bridgepack.host.roots import canonical_name_of

#: Errors of AutoBridge for a model that cannot be read or has an unknown family.
_MODEL_ERRORS = (OSError, RuntimeError, ValueError, TypeError, KeyError, ImportError, AttributeError)
_ADAPTERS = {"lora": ("peft.lora", "LoRA"), "dora": ("peft.dora", "DoRA")}


@dataclass(frozen=True, kw_only=True, slots=True)
class HostConfig:
    """A ConfigContainer of the installed host, and all settings that were written into its base, each path once."""

    config: Any
    settings: tuple[Setting, ...]


def to_bridge(recipe: SFTRecipe, *, artifact: str | Path | None = None) -> Any:
    """Return a new ConfigContainer of a recipe.

    Args:
        recipe: the recipe.
        artifact: folder of the packs (default: the recipe's, else `artifacts/NAME`). It need not exist yet.

    Raises:
        ConfigError: the base cannot be loaded here, the host does not have a setting, or the topology is
            impossible for the model.
    """
    recipe = _with_installed_release(recipe)
    _refuse(recipe, REFUSED)
    host = _host_config(recipe, artifact)
    for finding in findings_on(host.config, codes=OF_TOPOLOGY):  # of a model that only the host knows
        raise error_of(finding.with_user_paths(config_of_recipe(recipe).user_path))
    return host.config


def host_config(recipe: SFTRecipe, *, artifact: str | Path | None = None) -> HostConfig:
    """Return the ConfigContainer of a recipe, and every setting that was written into the base.

    Values of the base that do not work with packs are corrected if a rule has a safe change and the recipe does
    not set the value; `check` reports the others.

    Raises:
        ConfigError: `check` refuses the recipe, for more than its topology; or the base cannot be loaded here, or does
            not have a setting of which only the host itself knows.
    """
    recipe = _with_installed_release(checked_object(recipe))
    _refuse(recipe, OF_RECIPE)
    return _host_config(recipe, artifact)


def _host_config(recipe: SFTRecipe, artifact: str | Path | None) -> HostConfig:
    config, release = _base_config(recipe), recipe.release
    recipe, packs = _with_packs(recipe, artifact)
    base = config_of_container(config, place=recipe.name).values
    precision = plain_values(named_precision(recipe.precision.recipe))
    settings = settings_over(base, recipe, packs, precision)
    config.dataset = dataset_config(recipe, config.dataset, release)
    config.peft = _adapter(config.peft, recipe)
    if config.tokenizer.tokenizer_model != recipe.tokenizer.name_or_path:
        config.tokenizer = type(config.tokenizer)()
    assign(config, (dataclasses.replace(setting, path=place_in(config, setting.path)) for setting in settings.values()))
    for change in correct(
        config, may_change=lambda path: not is_decided(path, settings), world_size=recipe.parallelism.num_gpus
    ):
        settings[change.path] = derived_setting(change.path, change.value, change.why)
    return HostConfig(config=config, settings=tuple(settings.values()))


def _refuse(recipe: SFTRecipe, codes: Collection[str]) -> None:
    """Refuse, before anything of the host is made, what these rules find on plain values.

    Raises:
        ConfigError: the recipe has no model, or it is refused.
    """
    if recipe.model is None:
        raise ConfigError(
            "model is missing; a ConfigContainer needs one. Set model.name to a recipe of Megatron-Bridge or to an id "
            "on the Hugging Face hub.",
            field="model",
        )
    for refusal in refusals_of(recipe, codes):
        raise error_of(refusal)


def _with_installed_release(recipe: SFTRecipe) -> SFTRecipe:
    """Return a recipe for the installed host.

    Raises:
        ConfigError: it says that it is for another release.
    """
    release, version = installed_release(), import_host().__version__
    if recipe.bridge_version is not None and recipe.release.name != release.name:
        raise ConfigError(
            f"bridge_version is {recipe.bridge_version}, and megatron-bridge {version} is installed; allowed: "
            f"{release.name}. Set it to the version that trains, or install megatron-bridge {recipe.release.bridge}.",
            field="bridge_version",
        )
    return recipe.override({"bridge_version": version.partition("+")[0]})


def _base_config(recipe: SFTRecipe) -> Any:
    """Return a new base ConfigContainer: a shipped recipe's, or the host's common one with a model.

    Raises:
        ConfigError: the model cannot be loaded here.
    """
    assert recipe.model is not None
    if is_shipped_model(recipe.model):
        return load_shipped(recipe.model.name)
    common = import_host("recipes.common")
    config = common._peft_common() if isinstance(recipe.method, AdapterMethod) else common._sft_common()
    config.model = model_of_hub(recipe.model, recipe.release)
    return config


def model_of_hub(model: ModelConfig, release: HostRelease) -> Any:
    """Return the model section of a model of the hub or in a folder, as the recipes of a release make it.

    Raises:
        ConfigError: it cannot be loaded here.
    """
    options: dict[str, Any] = {"trust_remote_code": True} if model.trust_remote_code else {}
    if model.revision is not None:
        options["revision"] = model.revision
    bridge = import_host().AutoBridge
    try:
        auto_bridge = bridge.from_hf_pretrained(model.name, **options)
        if release.built_from_parts and _is_any_of(auto_bridge.hf_pretrained, release.built_from_parts):
            return auto_bridge.get_model_config()
        return auto_bridge.to_megatron_provider(load_weights=False)
    except _MODEL_ERRORS as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"model.name is {quote(model.name)}, which Megatron-Bridge cannot load here: {type(error).__name__}: "
            f"{reason}. Allowed: a folder, or an id in the Hugging Face cache or on the hub, of a model that "
            "AutoBridge knows. Fetch its config.json, or name a recipe of Megatron-Bridge.",
            field="model.name",
        ) from error


def _is_any_of(hf_model: Any, architectures: Collection[str]) -> bool:
    return any(name in architectures for name in getattr(hf_model.config, "architectures", None) or ())


def _with_packs(recipe: SFTRecipe, artifact: str | Path | None) -> tuple[SFTRecipe, Packs | None]:
    refuse_other_packs(recipe, artifact)
    folder = folder_of_packs(recipe, artifact)
    if folder is None:
        return recipe, None
    packs = packs_in(folder)
    return recipe.override({"artifact": str(folder)}), packs if packs.num_packs else None


def _adapter(base: Any, recipe: SFTRecipe) -> Any:
    if not isinstance(recipe.method, AdapterMethod):
        return None
    module, name = _ADAPTERS[recipe.method.kind]
    kind = getattr(import_host(module), name)
    return base if isinstance(base, kind) else kind()


_BUILDERS = "data.builders"
_DATASET_CLASS = canonical_name_of("data.builders.gpt_sft.GPTSFTDatasetConfig")
_SPECS_CLASS = canonical_name_of("data.packing.config.PackedSequenceSpecs")


def dataset_config(recipe: SFTRecipe, base: Any, release: HostRelease) -> Any:
    """Return a new dataset config of the class that the packing mode needs; settings complete it.

    The loader settings of the base's dataset config are kept; all of it is kept if it also reads from the hub.
    """
    size, mode = recipe.packing.packed_sequence_size, recipe.packing.mode
    loader = {name: getattr(base, name) for name in LOADER_FIELDS if hasattr(base, name)}
    if mode == "offline":
        sections = {_field_in(release, "dataset.seq_length"): size, _field_in(release, SPECS): new_specs(release, size)}
        return _host_class(release, _DATASET_CLASS)(**sections, **loader)
    sources = {"source": _source(recipe, "train"), "validation_source": None, "test_source": None}
    if recipe.data.validation is not None:
        sources["validation_source"] = _source(recipe, "validation")
    kind = import_host(_BUILDERS).DirectHFSFTDatasetConfig
    if type(base) is kind:
        return dataclasses.replace(base, seq_length=size, **sources)
    return kind(seq_length=size, **loader, **sources)


def new_specs(release: HostRelease, packed_sequence_size: int) -> Any:
    """Return a release's settings of offline packing, for packs of so many tokens."""
    return _host_class(release, _SPECS_CLASS)(
        **{_field_in(release, f"{SPECS}.packed_sequence_size"): packed_sequence_size}
    )


def _field_in(release: HostRelease, path: str) -> str:
    return name_in(release, path).rpartition(".")[2]


def _host_class(release: HostRelease, name: str) -> Any:
    module, _, attribute = class_in(release, name).rpartition(".")
    return getattr(import_by_name(module), attribute)


def _source(recipe: SFTRecipe, split: str) -> Any:
    return _source_config(as_sources(getattr(recipe.data, split))[0])


def _source_config(source: Source) -> Any:
    kind = import_host(_BUILDERS).HFDatasetSourceConfig
    path = path_of(source)
    if path is None:
        assert isinstance(source, DataSource)
        assert source.dataset is not None
        split = source.split or DEFAULT_SPLIT
        if _is_preset(kind, source.dataset):
            return kind(dataset_name=source.dataset, split=split)
        options = {"revision": source.revision} if source.revision is not None else None
        return kind(path_or_dataset=source.dataset, split=split, subset=source.name, load_kwargs=options)
    return kind(path_or_dataset=builder_of(path), split="train", load_kwargs={"data_files": path})


def _is_preset(kind: Any, name: str) -> bool:
    """Return whether the host has its own dataset with a name, e.g. `cord_v2`."""
    if "/" in name or Path(name).exists():
        return False
    try:
        kind(dataset_name=name).validate()
    except ValueError as error:
        return "requires adapter_kwargs" in str(error)
    return True
