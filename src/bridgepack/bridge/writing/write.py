"""Converts a recipe into a ConfigContainer of the installed Megatron-Bridge for `finetune(config, forward_step)`."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridgepack.bridge.adopting.corrections import correct, findings_on
from bridgepack.bridge.artifact_paths import packs_in
from bridgepack.bridge.bases import LOADER_FIELDS
from bridgepack.bridge.container import config_of_container
from bridgepack.bridge.inherited import is_decided, settings_over
from bridgepack.bridge.plain import plain_values
from bridgepack.bridge.shipped import import_host, is_shipped_model, load_shipped, named_precision
from bridgepack.bridge.wiring import Packs, Setting, derived, host_settings
from bridgepack.bridge.writing.assign import assign
from bridgepack.bridge.writing.older_hosts import look_up_packs, older_settings
from bridgepack.config.errors import shown
from bridgepack.config.recipe.data import DEFAULT_SPLIT, DataSource, Source, as_sources, listed, path_of, sets_amount
from bridgepack.config.recipe.preprocessing import FORM_FIELDS, ChatPreprocessing, Preprocessing
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.recipe.training import AdapterMethod, ModelConfig
from bridgepack.errors import ConfigError
from bridgepack.host.release import RELEASES, HostRelease, release_of

#: Errors of AutoBridge for a model that cannot be read or has an unknown family.
_MODEL_ERRORS = (OSError, RuntimeError, ValueError, TypeError, KeyError, ImportError, AttributeError)
#: Rules on impossible topologies, which the host reports late or not clearly.
_REFUSALS = frozenset({"BP820", "BP821", "BP825", "BP827"})
_ADAPTERS = {"lora": ("megatron.bridge.peft.lora", "LoRA"), "dora": ("megatron.bridge.peft.dora", "DoRA")}


@dataclass(frozen=True, kw_only=True, slots=True)
class HostConfig:
    """A ConfigContainer of the installed host, and all settings that were written into its base, each path once."""

    config: Any
    settings: tuple[Setting, ...]


def to_bridge(recipe: SFTRecipe, *, artifact: str | Path | None = None) -> Any:
    """Return a new ConfigContainer of a recipe.

    Args:
        recipe: the recipe.
        artifact: folder of the packs (default: the recipe's, else `artifacts/NAME`). It need not exist yet, except
            with megatron-bridge before 0.6, which needs the output of `bridgepack export`.

    Raises:
        ConfigError: the base cannot be loaded here, the host does not have a setting, or the topology is
            impossible for the model.
    """
    host = host_config(recipe, artifact=artifact)
    for finding in findings_on(host.config, codes=_REFUSALS):
        place = next((one.place for one in host.settings if one.path == finding.where), finding.where)
        raise ConfigError(f"{place} is {finding.found}; allowed: {finding.allowed} ({finding.code}). {finding.fix}")
    return host.config


def host_config(recipe: SFTRecipe, *, artifact: str | Path | None = None) -> HostConfig:
    """Return the ConfigContainer of a recipe, and every setting that was written into the base.

    Values of the base that do not work with packed rows are corrected if a rule has a safe change and the recipe does
    not set the value; `check` reports the others. Rules support the newest release only, so with an older release
    nothing is corrected.

    Raises:
        ConfigError: the base cannot be loaded here, or the host does not have a setting.
    """
    config = _base_config(recipe)
    release = release_of(import_host("megatron.bridge").__version__)
    recipe, packs = _with_packs(recipe, artifact)
    is_older = release is not RELEASES[-1]
    if is_older:
        settings = {one.path: one for one in older_settings(host_settings(recipe, packs=packs), release)}
    else:
        base = config_of_container(config, place=recipe.name).values
        precision = plain_values(named_precision(recipe.precision.recipe))
        settings = settings_over(base, recipe, packs, precision)
    config.dataset = dataset_config(recipe, config.dataset, release)
    config.peft = _adapter(config.peft, recipe)
    if config.tokenizer.tokenizer_model != recipe.tokenizer.name_or_path:
        config.tokenizer = type(config.tokenizer)()
    assign(config, settings.values())
    if is_older:
        look_up_packs(config, release)
        return HostConfig(config=config, settings=tuple(settings.values()))
    for change in correct(
        config, may_change=lambda path: not is_decided(path, settings), world_size=recipe.parallelism.num_gpus
    ):
        settings[change.path] = derived(change.path, change.value, change.why)
    return HostConfig(config=config, settings=tuple(settings.values()))


def _base_config(recipe: SFTRecipe) -> Any:
    """Return a new base ConfigContainer: a shipped recipe's, or the host's common one with a model.

    Raises:
        ConfigError: the recipe has no model, or the model cannot be loaded here.
    """
    if recipe.model is None:
        raise ConfigError(
            "model is missing; a ConfigContainer needs one. Set model.name to a recipe of Megatron-Bridge or to an id "
            "on the Hugging Face hub."
        )
    if is_shipped_model(recipe.model):
        config = load_shipped(recipe.model.name)
        if type(config.model).__module__.startswith("megatron.bridge.diffusion"):
            raise ConfigError(
                f"model.name is {shown(recipe.model.name)}, a {type(config.model).__name__}, which makes images or "
                "video; allowed: language models. Use another recipe."
            )
        return config
    common = import_host("megatron.bridge.recipes.common")
    config = common._peft_common() if isinstance(recipe.method, AdapterMethod) else common._sft_common()
    config.model = _provider(recipe.model)
    return config


def _provider(model: ModelConfig) -> Any:
    options: dict[str, Any] = {"trust_remote_code": True} if model.trust_remote_code else {}
    if model.revision is not None:
        options["revision"] = model.revision
    bridge = import_host("megatron.bridge").AutoBridge
    try:
        return bridge.from_hf_pretrained(model.name, **options).to_megatron_provider(load_weights=False)
    except _MODEL_ERRORS as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"model.name is {shown(model.name)}, which Megatron-Bridge cannot load here: {type(error).__name__}: "
            f"{reason}. Allowed: a folder, or an id in the Hugging Face cache or on the hub, of a model that "
            "AutoBridge knows. Fetch its config.json, or name a recipe of Megatron-Bridge."
        ) from error


def _with_packs(recipe: SFTRecipe, artifact: str | Path | None) -> tuple[SFTRecipe, Packs | None]:
    if recipe.packing.mode != "offline":
        return recipe, None
    folder = Path(artifact or recipe.artifact or f"artifacts/{recipe.name}")
    packs = packs_in(folder)
    return recipe.override({"artifact": str(folder)}), packs if packs.num_packs else None


def _adapter(base: Any, recipe: SFTRecipe) -> Any:
    if not isinstance(recipe.method, AdapterMethod):
        return None
    module, name = _ADAPTERS[recipe.method.kind]
    kind = getattr(import_host(module), name)
    return base if isinstance(base, kind) else kind()


_BUILDERS = "megatron.bridge.data.builders"
#: File suffix -> script-free builder of `datasets` that reads it.
_FILE_BUILDERS = {".jsonl": "json", ".json": "json", ".parquet": "parquet", ".arrow": "arrow", ".csv": "csv"}


def dataset_config(recipe: SFTRecipe, base: Any, release: HostRelease) -> Any:
    """Return a new dataset config of the class that the packing mode needs; settings complete it.

    The loader settings of the base's dataset config are kept; all of it is kept if it also reads from the hub.

    Raises:
        ConfigError: the host cannot read the data that way.
    """
    size, mode = recipe.packing.packed_sequence_size, recipe.packing.mode
    loader = {name: getattr(base, name) for name in LOADER_FIELDS if hasattr(base, name)}
    if mode == "offline":
        specs = _host_class(release.specs_class)(packed_sequence_size=size)
        field = release.specs_path.rpartition(".")[2]
        return _host_class(release.dataset_class)(seq_length=size, **{field: specs}, **loader)
    if recipe.preprocessing.kind == "tokenized":
        raise ConfigError(
            f"preprocessing.kind is tokenized; with packing.mode {mode} the host tokenises the data itself. Set it to "
            "chat or prompt_completion, or set packing.mode to offline."
        )
    _refuse_own_reading(recipe.preprocessing, mode)
    if recipe.data.validation_fraction > 0:
        raise ConfigError(
            f"data.validation_fraction is {recipe.data.validation_fraction}; with packing.mode {mode} the host reads "
            "the data itself and splits nothing. Name the validation data in data.validation."
        )
    if recipe.data.layout is not None:
        raise ConfigError(
            f"data.layout is set; with packing.mode {mode} the host reads the data itself, as it is. Remove it, or set "
            "packing.mode to offline."
        )
    sources = {"source": _source(recipe, "train"), "validation_source": None, "test_source": None}
    if recipe.data.validation is not None:
        sources["validation_source"] = _source(recipe, "validation")
    kind = import_host(_BUILDERS).DirectHFSFTDatasetConfig
    if type(base) is kind:
        return dataclasses.replace(base, seq_length=size, **sources)
    return kind(seq_length=size, **loader, **sources)


def _refuse_own_reading(preprocessing: Preprocessing, mode: str) -> None:
    """Check that a recipe asks for no reading of chats that the host does not do; what it does not say is the host's.

    Raises:
        ConfigError: it does; names the field.
    """
    if not isinstance(preprocessing, ChatPreprocessing):
        return
    of_host = dict.fromkeys(FORM_FIELDS, "keep")
    for name in sorted(preprocessing.model_fields_set - {"kind", "loss_mode", "over_long"}):
        value, allowed = getattr(preprocessing, name), of_host.get(name, type(preprocessing).model_fields[name].default)
        if value != allowed:
            raise ConfigError(
                f"preprocessing.{name} is {shown(value)}; with packing.mode {mode} the host reads the data itself, as "
                f"with {shown(allowed)}. Remove it, or set packing.mode to offline."
            )


def _host_class(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(import_host(module), attribute)


def _source(recipe: SFTRecipe, split: str) -> Any:
    found = as_sources(getattr(recipe.data, split))
    if len(found) != 1:
        raise ConfigError(
            f"data.{split} is a list of {len(found)} sources; with packing.mode {recipe.packing.mode} the host reads "
            "one. Name one, or set packing.mode to offline."
        )
    said = [name for name in ("layout", "columns", "kind") if getattr(found[0], name, None)]
    said += ["split"] if isinstance(found[0], DataSource) and found[0].path and found[0].split else []
    said += ["weight, epochs or max_rows"] if any(map(sets_amount, listed(getattr(recipe.data, split)))) else []
    if said:
        raise ConfigError(
            f"data.{split} sets {', '.join(said)}; with packing.mode {recipe.packing.mode} the host "
            "reads the data itself, as it is. Remove it, or set packing.mode to offline."
        )
    return _of_source(found[0], f"data.{split}")


def _of_source(source: Source, field: str) -> Any:
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
    builder = _FILE_BUILDERS.get(Path(path.removesuffix(".gz").removesuffix(".zst")).suffix)
    if builder is None:
        raise ConfigError(
            f"{field} is {shown(path)}; where the host reads the data itself, allowed: a file "
            f"({', '.join(_FILE_BUILDERS)}) or a section {{dataset: ID}}. Name one of these."
        )
    return kind(path_or_dataset=builder, split="train", load_kwargs={"data_files": path})


def _is_preset(kind: Any, name: str) -> bool:
    """Return whether the host has its own dataset with a name, e.g. `cord_v2`."""
    if "/" in name or Path(name).exists():
        return False
    try:
        kind(dataset_name=name).validate()
    except ValueError as error:
        return "requires adapter_kwargs" in str(error)
    return True
