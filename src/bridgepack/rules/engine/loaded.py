"""Settings as the host loads them: under the names of 0.6, and with its defaults.

Source: megatron/bridge/training/config.py and data/datasets/packed_sequence.py of 0.3.1, 0.4.2 and 0.5.1; rule
catalogue section 3; the defaults in the dataclasses of megatron-bridge 0.6.2 and megatron-core 0.19.2.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from packaging.version import Version

from bridgepack.host.fields import section_defaults
from bridgepack.records import RunConfig
from bridgepack.rules.engine.context import section
from bridgepack.rules.engine.environment import BRIDGE, Versions

_FIRST_WITH_CURRENT_NAMES = Version("0.6.dev0")
_SPECS = "packed_sequence_specs"
#: Field of `dataset` in 0.6 -> its earlier name.
_NAMES_BEFORE = {
    "enable_offline_packing": _SPECS,
    "offline_packing_specs": _SPECS,
    "enable_in_batch_packing": "pack_sequences_in_batch",
    "seq_length": "sequence_length",
}


def in_current_names(config: RunConfig, versions: Versions) -> RunConfig:
    """Return the settings with the fields of 0.3 to 0.5 copied to their names in 0.6.

    No existing setting is replaced. `user_paths` maps each new path to the path in the user's file.

    Example: `dataset.packed_sequence_specs {packed_sequence_size: 4096}` with 0.4.2 -> additionally
    `dataset.enable_offline_packing` true and `dataset.offline_packing_specs {packed_sequence_size: 4096}`.
    """
    dataset = section(config.values, "dataset")
    if versions[BRIDGE] >= _FIRST_WITH_CURRENT_NAMES:
        return config
    renamed = {name: old for name, old in _NAMES_BEFORE.items() if old in dataset and name not in dataset}
    if not renamed:
        return config
    values = {name: dataset[old] for name, old in renamed.items()}
    specs = dataset.get(_SPECS)
    has_packs = _asks_for_packs(specs)
    if "enable_offline_packing" in renamed:
        values["enable_offline_packing"] = has_packs
    if "offline_packing_specs" in renamed and not has_packs:
        values["offline_packing_specs"] = None
    user_paths = {f"dataset.{name}": f"dataset.{old}" for name, old in renamed.items()}
    if "offline_packing_specs" in renamed and isinstance(specs, Mapping):
        user_paths |= {f"dataset.offline_packing_specs.{field}": f"dataset.{_SPECS}.{field}" for field in specs}
    return replace(
        config,
        values={**config.values, "dataset": {**dataset, **values}},
        user_paths={**user_paths, **config.user_paths},
    )


def _asks_for_packs(specs: Any) -> bool:
    """Return whether specs turn packing on: if their size is positive (default: -1).

    Source: megatron/bridge/training/config.py:1212 of 0.4.2.
    """
    if not isinstance(specs, Mapping):
        return specs is not None
    size = specs.get("packed_sequence_size", -1)
    return type(size) is not int or size > 0


_LOADER: Mapping[str, Any] = {"num_workers": 2, "drop_last": True}
_TEXT: Mapping[str, Any] = {**_LOADER, "dataloader_type": "batch", "seed": 1234, "do_validation": True, "do_test": True}
_COLLATE: Mapping[str, Any] = {**_LOADER, "pad_to_multiple_of": 128, "in_batch_packing_pad_to_multiple_of": 1}
_NO_MASK = {"skip_getting_attention_mask_from_dataset": True}
_VALIDATES = {"do_validation": True}
#: Class -> field -> default.
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("GPTSFTDatasetConfig", "FinetuningDatasetConfig", "HFDatasetConfig"), _TEXT),
    "DirectHFSFTDatasetConfig": {**_COLLATE, **_NO_MASK, "dataloader_type": "cyclic", **_VALIDATES, "do_test": True},
    "EnergonDatasetConfig": {**_COLLATE, **_VALIDATES, "dataloader_type": "external", "shuffle_buffer_size": 100},
    "MockVLMSFTDatasetConfig": {**_COLLATE, **_NO_MASK, "dataloader_type": "single"},
    "PackedSequenceSpecs": {"packed_sequence_size": -1, "num_tokenizer_workers": -1, "pad_seq_to_mult": 1},
    "ValidationConfig": {"eval_iters": 100},
    "RerunStateMachineConfig": {"check_for_nan_in_loss": True},
    "DistributedInitConfig": {"distributed_timeout_minutes": 10},
    "RNGConfig": {"seed": 1234},
}


def with_host_defaults(config: RunConfig, versions: Versions) -> RunConfig:
    """Return a saved config with the host's defaults for missing sections and fields, as the host loads it.

    Incomplete settings are returned unchanged: their missing fields are set elsewhere.

    Example: `offline_packing_specs {_target_: ...PackedSequenceSpecs, packed_sequence_size: 4096}` -> additionally
    `pad_seq_to_mult` 1.
    """
    if not config.is_complete:
        return config
    is_current = versions[BRIDGE] >= _FIRST_WITH_CURRENT_NAMES
    absent = {name: value for name, value in section_defaults().items() if is_current and name not in config.values}
    return replace(config, values={name: _filled(value) for name, value in {**absent, **config.values}.items()})


def _filled(value: Any) -> Any:
    """Return a section with the defaults of its class and of the classes nested in it."""
    if not isinstance(value, Mapping):
        return value
    defaults = DEFAULTS.get(_class_of(value), {})
    nested = {key: _filled(inner) for key, inner in value.items() if _class_of(inner) in DEFAULTS}
    return {**defaults, **value, **nested} if nested or defaults else value


def _class_of(value: Any) -> str:
    return str(value.get("_target_")).rpartition(".")[2] if isinstance(value, Mapping) else ""
