"""The plain values of every config of the host that a recipe can start from, and of the classes that it makes anew."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scripts.facts.defaults import defaults_of

from bridgepack.bridge.container import config_of_container, flat_model
from bridgepack.bridge.imports import import_by_name, import_host
from bridgepack.bridge.plain import plain_values
from bridgepack.bridge.shipped import installed_release, named_precision, shipped_recipes
from bridgepack.bridge.writing.write import model_of_hub
from bridgepack.config.recipe.training import ModelConfig, PrecisionConfig
from bridgepack.errors import ConfigError
from bridgepack.host import HostRelease
from bridgepack.host.names import class_in, in_canonical_names
from tests.support.hub_configs import model_configs

#: Classes of which a recipe, or an override of one, makes a new object.
_CLASSES = (
    "megatron.bridge.data.builders.direct_hf_sft.DirectHFSFTDatasetConfig",
    "megatron.bridge.data.builders.gpt_sft.GPTSFTDatasetConfig",
    "megatron.bridge.data.packing.config.PackedSequenceSpecs",
    "megatron.bridge.data.sft_processing.ChatSFTPreprocessingConfig",
    "megatron.bridge.data.sft_processing.PromptCompletionSFTPreprocessingConfig",
    "megatron.bridge.data.sources.hf.HFDatasetSourceConfig",
    "megatron.bridge.peft.dora.DoRA",
    "megatron.bridge.peft.lora.LoRA",
    "megatron.bridge.training.comm_overlap.CommOverlapConfig",
    "megatron.bridge.training.config.FaultToleranceConfig",
    "megatron.bridge.training.config.InProcessRestartConfig",
    "megatron.bridge.training.config.NVRxStragglerDetectionConfig",
    "megatron.bridge.training.config.ProfilingConfig",
    "megatron.bridge.training.config.StragglerDetectionConfig",
    "megatron.bridge.training.config.TensorInspectConfig",
    "megatron.bridge.training.tokenizers.config.TokenizerConfig",
)
#: Nested configs of a model that are kept; those of vision, sound and the checkpoint are long and no rule reads them.
_NESTED = frozenset({"dist_train"})


def host_bases(configs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the file holds.

    Args:
        configs: module and name of a shipped recipe -> its ConfigContainer.
    """
    common = import_host("recipes.common")
    whole = {
        name.rpartition(".")[2]: dict(config_of_container(config, place="").values) for name, config in configs.items()
    }
    release = installed_release()
    providers = dict(_models_of_hub(release))
    bases = {name: {**values, "model": _without_nested(values["model"])} for name, values in whole.items()}
    models = {name: _without_nested(values) for name, values in providers.items()}
    every_model = [*(values["model"] for values in whole.values()), *providers.values()]
    start = {"full": common._sft_common(), "adapter": common._peft_common()}
    plain = {kind: {**plain_values(config), "model": None} for kind, config in start.items()}
    everything = [*bases.values(), *plain.values(), *({"model": model} for model in models.values())]
    names = sorted({name for base in everything for name in base} - {"_target_"})
    usual = {name: _usual([base[name] for base in everything if base.get(name) is not None]) for name in names}
    others: dict[str, list[Any]] = {name: [] for name in names}

    def places(base: Mapping[str, Any]) -> list[int | None]:
        return [_place(base.get(name), usual[name], others[name]) for name in names]

    here, own_names = str(Path.cwd()), {name: function.__name__ for name, function in shipped_recipes().items()}
    content = {
        "host": import_host().__version__.partition("+")[0],
        "sections": names,
        "recipes": {name: places(base) for name, base in bases.items()},
        "aliases": {name: own for name, own in own_names.items() if name != own},
        "not_made": {name: _why_not_made(name) for name in sorted(set(own_names.values()) - set(bases))},
        "models": {name: _place(model, usual["model"], others["model"]) for name, model in models.items()},
        "common": {kind: places(base) for kind, base in plain.items()},
        "parts": dict(sorted(part for model in every_model for part in _parts(model))),
        "left_out": sorted({name for model in every_model for name in model.keys() - _without_nested(model).keys()}),
        "usual": usual,
        "others": others,
        "classes": {name: _new_object(name) for name in (class_in(release, name) for name in _CLASSES)},
        "enums": dict(sorted({path: kind for base in everything for path, kind in _enums(base)}.items())),
        "precisions": {name: plain_values(named_precision(name)) for name in _precisions()},
    }
    without_folder = json.dumps(content, default=str).replace(f"{here}/", "")
    return dict(json.loads(without_folder))


def _why_not_made(name: str) -> str:
    try:
        shipped_recipes()[name]()
    except NotImplementedError as error:
        return str(error)
    raise AssertionError(f"{name} can be made")


def _enums(base: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (path, class) of the fields that hold a member of an enum."""
    for section, values in base.items():
        for name, value in values.items() if isinstance(values, Mapping) else ():
            if isinstance(value, Mapping) and "_name_" in value:
                yield f"{section}.{name}", value["_target_"]


def _parts(model: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (class of a model, class of the transformer in it) of a model that is built from parts."""
    if isinstance(model.get("transformer"), Mapping):
        yield model["_target_"], model["transformer"]["_target_"]


def _without_nested(model: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in model.items() if name in _NESTED or not _is_left_out(value)}


def _is_left_out(value: Any) -> bool:
    """Say whether a field holds a config of its own, or a function."""
    is_number_format = isinstance(value, Mapping) and str(value.get("_target_")).startswith("torch.")
    return isinstance(value, Mapping) and "_name_" not in value and not is_number_format


def _models_of_hub(release: HostRelease) -> Iterator[tuple[str, Any]]:
    """Yield (id, model section under canonical names) of the models that AutoBridge knows."""
    for name in model_configs():
        try:
            values = flat_model(plain_values(model_of_hub(ModelConfig(name=name), release)))
        except ConfigError:
            continue
        yield name, in_canonical_names({"model": values}, release)[0]["model"]


def _usual(values: list[Any]) -> Any:
    """Return the most common value of each field that most values have; nothing of sections that are no objects."""
    if not all(isinstance(value, Mapping) for value in values):
        return None
    found = Counter(name for value in values for name in value)
    names = sorted(name for name, number in found.items() if 2 * number > len(values))
    return {name: _most_common([value[name] for value in values if name in value]) for name in names}


def _most_common(values: list[Any]) -> Any:
    return json.loads(Counter(map(_text, values)).most_common(1)[0][0]) if values else None


def _place(value: Any, usual: Any, others: list[Any]) -> int | None:
    """Return where a value is among the others, where it is put as what it has else than the usual; None for none."""
    if value is None:
        return None
    if isinstance(value, Mapping) and isinstance(usual, Mapping):
        changed = {name: item for name, item in value.items() if name not in usual or _text(usual[name]) != _text(item)}
        absent = sorted(name for name in usual if name not in value)
        value = {**changed, **({"-": absent} if absent else {})}
    else:
        value = {"=": value}
    plain = json.loads(_text(value))
    if plain not in others:
        others.append(plain)
    return others.index(plain)


def _new_object(name: str) -> dict[str, Any]:
    """Return the fields of a new object of a class; of one that needs arguments, the defaults of the others."""
    module, _, attribute = name.rpartition(".")
    try:
        return plain_values(getattr(import_by_name(module), attribute)())
    except TypeError:
        return {**defaults_of(name), "_target_": name}


def _precisions() -> tuple[str, ...]:
    return tuple(PrecisionConfig.model_fields["recipe"].annotation.__args__)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
