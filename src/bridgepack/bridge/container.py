"""A ConfigContainer of Megatron-Bridge, live or saved as YAML, as the settings that rules judge."""

import copy
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from types import NoneType
from typing import Any

from bridgepack.bridge.bases import all_sections
from bridgepack.bridge.plain import plain_values
from bridgepack.config.errors import did_you_mean, quote
from bridgepack.config.installed import installed_root
from bridgepack.errors import ConfigError
from bridgepack.host import ROOTS, TARGET, release_of
from bridgepack.host.names import in_canonical_names
from bridgepack.host.roots import CANONICAL, in_package, package_in
from bridgepack.records import RunConfig

#: Sections of every ConfigContainer, which identify one.
SECTIONS = ("model", "train", "dataset")
_CONTAINER = "ConfigContainer"
#: Section that may also be the name of a preset.
_NAMED_PRESET = "mixed_precision"
_MAX_NAMES = 30


def is_container(value: Any) -> bool:
    """Return whether an object is a ConfigContainer of any version."""
    return not isinstance(value, (type, Mapping)) and all(hasattr(value, name) for name in SECTIONS)


def is_saved_container(values: Any) -> bool:
    """Return whether parsed YAML is a saved ConfigContainer."""
    return isinstance(values, Mapping) and (
        str(values.get("_target_", "")).endswith(_CONTAINER)
        or all(isinstance(values.get(name), Mapping) and "_target_" in values[name] for name in SECTIONS)
    )


def config_of_container(container: Any, *, place: str) -> RunConfig:
    """Return the settings of a live ConfigContainer under canonical names; it is not changed.

    Raises:
        ConfigError: it has no model, train or dataset section.
    """
    root = installed_root()
    host = sys.modules.get(root)  # a live config's package is imported; other objects have no version
    version = TARGET.bridge if host is None else str(host.__version__).partition("+")[0]
    values, user_paths = in_canonical_names(_canonical(plain_values(container), root), release_of(version))
    return replace(_config(values, place), user_paths=user_paths, bridge_version=version)


def config_of_saved(values: Mapping[str, Any], *, place: str) -> RunConfig:
    """Return the settings of a saved ConfigContainer from its parsed YAML, without importing its classes.

    Classes have canonical names, whichever release's package the file names.

    Raises:
        ConfigError: the config is not complete.
    """
    package = package_in(values, ROOTS)
    return replace(_config(_canonical(_restore(values), package or CANONICAL), place), package=package)


def with_changes(config: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
    """Return a complete config with changed values, dotted path -> value.

    Raises:
        ConfigError: a path does not exist, or a section would become a plain value.
    """
    values, paths = copy.deepcopy(dict(config.values)), {theirs: ours for ours, theirs in config.user_paths.items()}
    for path, value in changes.items():
        _change(values, paths.get(path, path), value)
    return replace(config, values=values)


def _change(values: dict[str, Any], path: str, value: Any) -> None:
    *sections, leaf = path.split(".")
    node = values
    for index, section in enumerate(sections):
        child = node.get(section)
        if child is None and section in node and index > 0:
            child = {}
        if not isinstance(child, dict):
            raise _no_field(path, ".".join(sections[: index + 1]), section, node)
        node[section] = node = child
    if leaf not in node and "_target_" in node:
        raise _no_field(path, path, leaf, node)
    if path in all_sections():
        check_section(f"--set {path}", path, value)
    elif (
        isinstance(node.get(leaf), Mapping) and "_target_" in node[leaf] and not isinstance(value, (Mapping, NoneType))
    ):
        raise ConfigError(f"--set {path} is {quote(value)}; allowed: named fields, or null. Set one of its fields.")
    node[leaf] = value


def check_section(place: str, name: str, value: Any) -> None:
    """Check the value of a section: named fields, or None for an optional section.

    Raises:
        ConfigError: the value is something else.
    """
    is_preset = name == _NAMED_PRESET and isinstance(value, str)
    if isinstance(value, Mapping) or is_preset or (value is None and name not in SECTIONS):
        return
    or_null = "" if name in SECTIONS else ", or null for none"
    raise ConfigError(f"{place} is {quote(value)}; allowed: a section with named fields{or_null}.")


def _no_field(path: str, wrong: str, name: str, node: Mapping[str, Any]) -> ConfigError:
    names = sorted(key for key in node if not key.startswith("_"))
    more = f", and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    hint = did_you_mean(name, names, f"It has: {', '.join(names[:_MAX_NAMES])}{more}.")
    if name in node:
        hint = f"{wrong} is {quote(node[name])}, which has no fields. Set {wrong} as a whole."
        name = path.removeprefix(f"{wrong}.")
    return ConfigError(f"--set {path}: the config has no field {quote(name)} there. {hint}")


def _config(values: dict[str, Any], place: str) -> RunConfig:
    for name in SECTIONS:
        if not isinstance(values.get(name), Mapping) or "_target_" not in values[name]:
            state = quote(values[name]) if name in values else "missing"
            raise ConfigError(
                f"{name} of {place} is {state}; allowed: an object of the host, saved as its fields with its class in "
                "_target_. Give the whole config, as cfg.to_yaml(FILE) saves it."
            )
    for name in sorted(values.keys() & all_sections()):
        check_section(f"{name} of {place}", name, values[name])
    values["model"] = flat_model(values["model"])
    return RunConfig(values=values, is_complete=True, place=place)


def flat_model(model: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a model's settings; of one that is built from parts, with those of its transformer beside its own."""
    parts = model.get("transformer")
    return {**parts, **model} if isinstance(parts, Mapping) else model


def _canonical(value: Any, root: str) -> Any:
    """Return plain values whose classes have canonical names in place of those in a release's package."""
    if root == CANONICAL:
        return value
    if isinstance(value, list):
        return [_canonical(item, root) for item in value]
    if not isinstance(value, Mapping):
        return value
    values = {key: _canonical(item, root) for key, item in value.items()}
    if isinstance(values.get("_target_"), str):
        values["_target_"] = in_package(values["_target_"], root, CANONICAL)
    return values


def _restore(value: Any) -> Any:
    if isinstance(value, Mapping):
        if str(value.get("_target_", "")).startswith("pathlib."):
            parts = value.get("_args_")  # megatron-bridge 0.6.2 saves none, so the path is lost
            return PurePosixPath(*(str(part) for part in parts if part)) if isinstance(parts, list) else PurePosixPath()
        return {str(key): _restore(item) for key, item in value.items()}
    return [_restore(item) for item in value] if isinstance(value, list) else value
