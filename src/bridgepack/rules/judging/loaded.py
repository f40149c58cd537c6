"""Settings as the host loads them: under canonical names, and with its defaults."""

from collections.abc import Mapping
from dataclasses import replace
from types import NoneType
from typing import Any

from bridgepack.host.names import in_canonical_names
from bridgepack.records import RunConfig
from bridgepack.rules.judging.environment import Versions


def in_current_names(config: RunConfig, versions: Versions) -> RunConfig:
    """Return the settings under canonical names; `user_paths` maps each moved path to the path in the user's file.

    Example: a release that calls `dataset.offline_packing_specs` `dataset.packing_specs` -> the first name, for which
    `user_paths` has the second.
    """
    values, moved_paths = in_canonical_names(config.values, versions.release)
    return replace(config, values=values, user_paths={**moved_paths, **config.user_paths}) if moved_paths else config


def with_host_defaults(config: RunConfig, versions: Versions) -> RunConfig:
    """Return a saved config with the host's defaults for missing sections and fields, as the host loads it.

    Incomplete settings are returned unchanged: their missing fields are set elsewhere.

    Example: `offline_packing_specs {_target_: ...PackedSequenceSpecs, packed_sequence_size: 4096}` -> additionally
    `pad_seq_to_mult` 1.
    """
    if not config.is_complete:
        return config
    facts = versions.release.facts
    absent = {name: value for name, value in facts.section_defaults.items() if name not in config.values}
    values = {**absent, **config.values}
    return replace(config, values={name: _fill_defaults(value, facts.defaults) for name, value in values.items()})


#: Types of nearly all values: to ask whether one is a mapping takes longer.
_PLAIN = frozenset({NoneType, bool, int, float, str, list, tuple})


def _fill_defaults(value: Any, defaults_of_classes: Mapping[str, Mapping[str, Any]]) -> Any:
    """Return a section with the defaults of its class and of the classes nested in it."""
    if not isinstance(value, (dict, Mapping)):
        return value
    defaults = defaults_of_classes.get(_class_of(value), {})
    sections = {
        key: _fill_defaults(inner, defaults_of_classes)
        for key, inner in value.items()
        if type(inner) not in _PLAIN and _class_of(inner) in defaults_of_classes
    }
    return {**defaults, **value, **sections} if sections or defaults else value


def _class_of(value: Any) -> str:
    return str(value.get("_target_")).rpartition(".")[2] if isinstance(value, (dict, Mapping)) else ""
