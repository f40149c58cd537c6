"""Settings of a version as objects of that version's own classes, which must be installed here."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridgepack.bridge.recipe import PATH_SETTINGS
from bridgepack.bridge.shipped import import_host
from bridgepack.bridge.versions.mapping import VersionSettings
from bridgepack.bridge.wiring import Setting
from bridgepack.bridge.writing.assign import assign
from bridgepack.bridge.writing.values import declared_types, host_value
from bridgepack.errors import ConfigError
from bridgepack.releases import installed_host, release_of


@dataclass(frozen=True, kw_only=True, slots=True)
class PackingObjects:
    """What tells a version of Megatron-Bridge to read packs.

    Attributes:
        specs: its PackedSequenceSpecs.
        dataset: its config of the dataset, with the specs in it.
    """

    specs: Any
    dataset: Any


def host_class(name: str) -> Any:
    """Return a class of the installed Megatron-Bridge by its dotted name.

    Raises:
        ConfigError: its module cannot be imported, or has no such class.
    """
    module, _, attribute = name.rpartition(".")
    found = getattr(import_host(module), attribute, None)
    if found is None:
        raise ConfigError(
            f"{module} has no {attribute}: megatron-bridge {installed_host()} is none that is known here."
        )
    return found


def packing_objects(mapped: VersionSettings) -> PackingObjects:
    """Return the specs and the dataset's config; every version looks the packs up at once.

    Raises:
        ConfigError: another version is installed, there are no packs at the paths, or a value does not fit.
    """
    _refuse_other_version(mapped)
    release = mapped.release
    values = _nested(mapped.dataset)["dataset"]
    field = release.specs_path.rpartition(".")[2]
    if field not in values:
        raise ConfigError("packing.mode is not offline; only packs on disk have one form in each version. Set offline.")
    specs = _made(release.specs_class, values[field], release.specs_path)
    dataset = _made(release.dataset_class, {**values, field: specs}, "dataset")
    return PackingObjects(specs=specs, dataset=dataset)


def configured(base: Any, mapped: VersionSettings) -> Any:
    """Return a ConfigContainer of the installed version with every setting of a recipe in it.

    Args:
        base: a ConfigContainer of that version, e.g. of one of its own recipes; it is not changed.
        mapped: the settings.

    Raises:
        ConfigError: a setting that matters has no place in this version, or as `packing_objects`.
    """
    if mapped.lost:
        first = mapped.lost[0].setting
        raise ConfigError(
            f"{first.field or first.path} is {first.value!r}; megatron-bridge {mapped.bridge_version} has no place for "
            f"it: {mapped.lost[0].instead}. Change it, or upgrade megatron-bridge."
        )
    config = copy.deepcopy(base)
    config.dataset = packing_objects(mapped).dataset
    assign(config, mapped.others)
    return config


def _refuse_other_version(mapped: VersionSettings) -> None:
    installed = installed_host()
    if release_of(installed) is not mapped.release:
        raise ConfigError(
            f"bridge_version is {mapped.bridge_version}; megatron-bridge {installed} is installed here, which names "
            "things otherwise. Make the objects where that version is installed."
        )


def _nested(settings: Iterable[Setting]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for setting in settings:
        *sections, leaf = setting.path.split(".")
        node = values
        for section in sections:
            node = node.setdefault(section, {})
        node[leaf] = copy.deepcopy(setting.value)
    return values


def _made(name: str, values: dict[str, Any], path: str) -> Any:
    """Return an object of a class; a value of None is left to the class's default."""
    kind = host_class(name)
    types = declared_types(kind)
    unknown = sorted(values.keys() - types.keys())
    if unknown:
        raise ConfigError(
            f"{path}.{unknown[0]}: {kind.__name__} of megatron-bridge {installed_host()} has no such field."
        )
    given = {
        field: host_value(_as_path(value, f"{path}.{field}"), types[field], field=f"{path}.{field}")
        for field, value in values.items()
        if value is not None
    }
    try:
        return kind(**given)
    except (OSError, TypeError, ValueError, AssertionError) as error:
        raise ConfigError(f"{path}: {kind.__name__} of megatron-bridge {installed_host()} refuses: {error}.") from error


def _as_path(value: Any, path: str) -> Any:
    return Path(value) if path in PATH_SETTINGS and isinstance(value, str) else value
