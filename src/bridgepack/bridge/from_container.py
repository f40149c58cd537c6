"""A ConfigContainer of Megatron-Bridge, live or saved as YAML, as the settings that rules judge."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from bridgepack.bridge.plain import plain_values
from bridgepack.config.messages import nearest_name, shown
from bridgepack.errors import ConfigError
from bridgepack.records import RunConfig

#: Sections that every ConfigContainer has; by them one is told from anything else.
SECTIONS = ("model", "train", "dataset")
_CONTAINER = "ConfigContainer"


def is_container(value: Any) -> bool:
    """Say whether an object is a ConfigContainer, of whichever version."""
    return not isinstance(value, (type, Mapping)) and all(hasattr(value, name) for name in SECTIONS)


def is_saved_container(values: Any) -> bool:
    """Say whether parsed YAML is a saved ConfigContainer."""
    return isinstance(values, Mapping) and (
        str(values.get("_target_", "")).endswith(_CONTAINER)
        or all(isinstance(values.get(name), Mapping) and "_target_" in values[name] for name in SECTIONS)
    )


def config_of_container(container: Any, *, place: str) -> RunConfig:
    """Return the settings of a live ConfigContainer; the object is only read."""
    return _config(plain_values(container), place)


def config_of_saved(values: Mapping[str, Any], *, place: str) -> RunConfig:
    """Return the settings of a saved ConfigContainer.

    Args:
        values: the parsed YAML; no class that it names is imported.
        place: the file.
    """
    return _config(_restored(values), place)


def changed(config: RunConfig, changes: Mapping[str, Any]) -> RunConfig:
    """Return the settings with some values changed.

    Args:
        config: a complete config.
        changes: dotted path -> value.

    Raises:
        ConfigError: a path leads nowhere.
    """
    values = _copied(config.values)
    for path, value in changes.items():
        *sections, leaf = path.split(".")
        node = values
        for index, section in enumerate(sections):
            known = node.get(section)
            if known is None and section in node and index > 0:
                known = {}
            if not isinstance(known, dict):
                raise _unknown(path, section, node)
            node[section] = node = known
        if leaf not in node and "_target_" in node:
            raise _unknown(path, leaf, node)
        node[leaf] = value
    return RunConfig(
        values=values,
        is_complete=config.is_complete,
        place=config.place,
        user_paths=config.user_paths,
        ignored=config.ignored,
        world_size=config.world_size,
    )


def _unknown(path: str, name: str, node: Mapping[str, Any]) -> ConfigError:
    known = sorted(key for key in node if not key.startswith("_"))
    nearest = nearest_name(name, known)
    hint = f"Did you mean {nearest}?" if nearest else f"It has: {', '.join(known[:20])}."
    return ConfigError(f"--set {path}: the config has no field {shown(name)} there. {hint}")


def _config(values: dict[str, Any], place: str) -> RunConfig:
    model = values.get("model")
    if isinstance(model, dict) and isinstance(model.get("transformer"), dict):
        values["model"] = {**model["transformer"], **model}
    return RunConfig(values=values, is_complete=True, place=place)


def _copied(values: Any) -> Any:
    return {key: _copied(value) for key, value in values.items()} if isinstance(values, Mapping) else values


def _restored(value: Any) -> Any:
    """Return saved values with path objects restored."""
    if isinstance(value, Mapping):
        if str(value.get("_target_", "")).startswith("pathlib."):
            parts = value.get("_args_")  # megatron-bridge 0.6.2 saves none, so the path is lost
            return PurePosixPath(*(str(part) for part in parts if part)) if isinstance(parts, list) else PurePosixPath()
        return {str(key): _restored(item) for key, item in value.items()}
    return [_restored(item) for item in value] if isinstance(value, list) else value
