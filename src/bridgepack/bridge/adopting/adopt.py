"""Converts a ConfigContainer into a recipe: its settings as sections, and what differs from the base as overrides."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from bridgepack.bridge.adopting.pack_for import PackedConfig, pack_for
from bridgepack.bridge.adopting.recipe_of import sections_of
from bridgepack.bridge.container import config_of_container, is_container
from bridgepack.bridge.live import value_in
from bridgepack.bridge.plain import holder_of, plain_values, put, value_at
from bridgepack.bridge.shipped import named_precision, shipped_name, shipped_recipes
from bridgepack.bridge.wiring import OVERRIDES
from bridgepack.bridge.writing.assign import is_ignored
from bridgepack.bridge.writing.values import declared_types
from bridgepack.bridge.writing.write import HostConfig, host_config
from bridgepack.config.recipe.host_paths import BOOKKEEPING, EXCHANGE, RUN_NAMES
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.records.words import kind_of

__all__ = ["PackedConfig", "from_bridge", "pack_for"]

#: Path of the host -> field of the recipe that says it, where the recipe leaves it to the base by default.
_FIELDS: Mapping[str, str] = {
    "model.attention_backend": "model.attention_backend",
    **EXCHANGE,
    **{path: field for path, field in BOOKKEEPING.items() if path != "checkpoint.load"},
    **RUN_NAMES,
}
#: What a recipe always does differently: data is read from packs, or by the class that its packing mode needs.
_ALWAYS_OURS = re.compile(
    r"dataset(\.(_target_|dataset_root|hf_.*|do_test|do_validation|source|validation_source|test_source|preprocessing"
    r"|memmap_workers|offline_packing_specs\.packed_.*_path|dataset_kwargs\.pad_to_max_length)(\..*)?)?$"
    r"|tokenizer\.(tokenizer_type|vocab_size)$|model\.hf_model_id$"
)
_SIZES = frozenset({"model.seq_length", "dataset.seq_length"})
#: Settings that the host works out when the run starts, or that say the same in two ways.
_WORKED_OUT = frozenset({"scheduler.lr_decay_iters", "train.eval_iters", "train.eval_interval"})
#: Where None stands for what the recipe has too.
_NONE_IS_DEFAULT = ("validation.eval_", "tokenizer.tokenizer_model", "dataset.dataset_kwargs")


def from_bridge(
    config: Any,
    *,
    name: str | None = None,
    data: Mapping[str, Any] | None = None,
    model: str | Mapping[str, Any] | None = None,
    num_gpus: int | None = None,
) -> SFTRecipe:
    """Return the recipe that is equivalent to a ConfigContainer, which is not changed.

    `to_bridge` of the recipe has the same settings, except those that packs need to differ.

    Args:
        config: a ConfigContainer.
        name: name of the recipe (default: from the model); the name of a shipped recipe also selects the base.
        data: the inputs (default: from the config).
        model: the base, a shipped recipe or a model id (default: from `name` or the config).
        num_gpus: number of GPUs of the run.

    Raises:
        ConfigError: the config has a setting that a recipe cannot express.
    """
    if not is_container(config):
        raise ConfigError(f"config is {kind_of(config)}; allowed: a ConfigContainer. Pass one.")
    if getattr(config, "data_parallel_size", None) is not None:
        raise ConfigError(
            "config has been through runtime_config_update or validate, which filled in derived values; "
            "allowed: a ConfigContainer before that. Adopt it where it is made."
        )
    base = _base(config, name, model)
    sections = sections_of(config, num_gpus=num_gpus, data=data)
    by_default = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(base["name"]).name) or "adopted"
    recipe = SFTRecipe.from_mapping({"name": name or by_default, "model": base, **sections})
    recipe = _with_the_rest(recipe, config)
    undecided_settings = dict(_undecided_settings(host_config(recipe), config))
    if undecided_settings:
        raise ConfigError(_unsayable(undecided_settings))
    return recipe.for_installed_host()


def _base(config: Any, name: str | None, model: str | Mapping[str, Any] | None) -> dict[str, Any]:
    if model is not None:
        return dict(model) if isinstance(model, Mapping) else {"name": model}
    if name is not None and shipped_name(name) in shipped_recipes():
        return {"name": shipped_name(name)}
    identity = value_in(config, "model.hf_model_id")
    if not identity:
        raise ConfigError(
            "model of the config names no model id. Pass the base as model=, a shipped recipe or an id on the Hugging "
            "Face hub."
        )
    return {"name": str(identity)}


def _with_the_rest(recipe: SFTRecipe, config: Any) -> SFTRecipe:
    host = host_config(recipe)
    fields: dict[str, Any] = {}
    overrides: dict[str, Any] = {}
    for path, (ours, config_value) in _undecided_settings(host, config):
        value = as_written(config_value)
        if path.startswith("env_vars."):
            fields[f"environment.{path.removeprefix('env_vars.')}"] = value
        elif path in _FIELDS and value is not None and _fits(recipe, _FIELDS[path], value):
            fields[_FIELDS[path]] = value
        elif ours is None and isinstance(config_value, dict) and is_representable(without_classes(value)):
            put(overrides, path, without_classes(value))
        elif is_representable(value):
            put(overrides, path, value)
    if "checkpoint.folder" in fields and fields["checkpoint.folder"] == value_at(config, "checkpoint.load"):
        overrides.get("checkpoint", {}).pop("load", None)
    overrides = {name: section for name, section in overrides.items() if section != {}}
    return recipe.override(fields | ({OVERRIDES: overrides} if overrides else {}))


def _fits(recipe: SFTRecipe, field: str, value: Any) -> bool:
    """Return whether a recipe's field accepts a value; values that only the host accepts become overrides."""
    try:
        return bool(recipe.override({field: value}))
    except ConfigError:
        return False


def _undecided_settings(host: HostConfig, config: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield (path, (value of the recipe, value of the config)) where the recipe must adopt the config's value."""
    derived_paths = {setting.path for setting in host.settings if setting.origin == "derived"}
    for path, (ours, config_value) in differences(host.config, config).items():
        is_ours = path in derived_paths or path in _SIZES or _ALWAYS_OURS.match(path)
        is_unknown = ours is MISSING and not _is_declared(config, path)
        if not (is_ours or is_unknown or _means_the_same(path, config_value, config) or is_ignored(config, path)):
            yield path, (ours, config_value)


def _means_the_same(path: str, config_value: Any, config: Any) -> bool:
    if path in _WORKED_OUT:
        return config_value in (None, config.train.train_iters)
    return config_value is None and path.startswith(_NONE_IS_DEFAULT)


def _is_declared(config: Any, path: str) -> bool:
    """Return whether the host declares a field; it ignores attributes with unknown names."""
    section, _, name = path.rpartition(".")
    node = value_at(config, section) if section else config
    return isinstance(node, dict) or name in declared_types(type(holder_of(node, name) or node))


def _unsayable(settings: Mapping[str, tuple[Any, Any]]) -> str:
    path, values = next(iter(settings.items()))
    base, value_text = ("missing" if value is MISSING else repr(as_written(value))[:80] for value in values)
    other_paths = f" (and {len(settings) - 1} more: {', '.join(list(settings)[1:6])})" if len(settings) > 1 else ""
    return (
        f"{path} is {value_text}, the base has {base}, and a recipe cannot express that{other_paths}. "
        "Name a base that has it with model=, or keep the ConfigContainer and call pack_for on it."
    )


#: Marks a missing value.
MISSING = object()


def differences(config: Any, other_config: Any) -> dict[str, tuple[Any, Any]]:
    """Return dotted path -> (value in the first, value in the second) of differences; `MISSING` for a missing value.

    Values are plain; an enum's member equals its name, a path its text, and a registered name of mixed precision the
    object that it names.
    """
    return plain_differences(_comparable(config), _comparable(other_config))


def plain_differences(values: Mapping[str, Any], other_values: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the differences of plain values, as `differences`."""
    return dict(_differences(values, other_values, ""))


def is_representable(value: Any) -> bool:
    """Return whether a recipe can contain a plain value: not a function, class or object of the host."""
    if isinstance(value, Mapping):
        return all(not name.startswith("_") and is_representable(item) for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(is_representable(item) for item in value)
    return value is not MISSING


def without_classes(value: Any) -> Any:
    """Return a plain object as a mapping of its set fields, without class names."""
    if not isinstance(value, Mapping):
        return value
    return {name: without_classes(item) for name, item in value.items() if name != "_target_" and item is not None}


def as_written(value: Any) -> Any:
    """Return a plain value as written in a recipe: an enum member as its name, a path as text."""
    if isinstance(value, Mapping):
        if "_name_" in value:
            return value["_name_"]
        if str(value.get("_target_", "")).startswith("torch.") and value.get("_call_") is False:
            return str(value["_target_"]).removeprefix("torch.")
        return {name: as_written(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_written(item) for item in value]
    return str(value) if isinstance(value, PurePath) else value


def _comparable(config: Any) -> dict[str, Any]:
    values = dict(config_of_container(config, place="config").values)
    values["model"] = {name: value for name, value in values["model"].items() if name != "transformer"}
    if isinstance(config.mixed_precision, str):
        values["mixed_precision"] = plain_values(named_precision(config.mixed_precision))
    return values


def _differences(value: Any, other_value: Any, path: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
    if _is_object(value) and _is_object(other_value) and _class(value) == _class(other_value):
        for name in dict.fromkeys((*value, *other_value)):
            if name == "_target_":
                continue
            below = f"{path}.{name}" if path else name
            yield from _differences(value.get(name, MISSING), other_value.get(name, MISSING), below)
    elif as_written(value) != as_written(other_value):
        yield path, (value, other_value)


def _class(value: Mapping[str, Any]) -> str:
    """Return the name of a class without its module: the host has subclasses of the same name."""
    return str(value.get("_target_", "")).rpartition(".")[2]


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping) and "_name_" not in value and "_call_" not in value
