"""Settings as the host loads them: under the names that it has since 0.6, and with its defaults.

Source: megatron/bridge/training/config.py and data/datasets/packed_sequence.py of 0.3.1, 0.4.2 and 0.5.1; rule
catalogue section 3; the dataclasses of megatron-bridge 0.6.2 and megatron-core 0.19.2 that have the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from packaging.version import Version

from bridgepack.records import RunConfig
from bridgepack.rules.engine.environment import BRIDGE, Versions

_FIRST_WITH_CURRENT_NAMES = Version("0.6.dev0")
_SPECS, _IN_BATCH, _LENGTH = "packed_sequence_specs", "pack_sequences_in_batch", "sequence_length"


def in_current_names(config: RunConfig, versions: Versions) -> RunConfig:
    """Return the settings with what 0.3 to 0.5 call otherwise under its name in 0.6 too.

    Nothing that is stated is replaced. A path that comes from another one has that as its path in the user's file.

    Example: `dataset.packed_sequence_specs {packed_sequence_size: 4096}` with 0.4.2 -> besides,
    `dataset.enable_offline_packing` true and `dataset.offline_packing_specs {packed_sequence_size: 4096}`.
    """
    dataset = config.values.get("dataset")
    if versions[BRIDGE] >= _FIRST_WITH_CURRENT_NAMES or not isinstance(dataset, Mapping):
        return config
    renamed = {name: entry for name, entry in _renamed(dataset).items() if name not in dataset}
    if not renamed:
        return config
    values = {name: value for name, (_, value) in renamed.items()}
    user_paths = {f"dataset.{name}": f"dataset.{old}" for name, (old, _) in renamed.items()}
    specs = dataset.get(_SPECS)
    if "offline_packing_specs" in renamed and isinstance(specs, Mapping):
        user_paths |= {f"dataset.offline_packing_specs.{field}": f"dataset.{_SPECS}.{field}" for field in specs}
    return replace(
        config,
        values={**config.values, "dataset": {**dataset, **values}},
        user_paths={**user_paths, **config.user_paths},
    )


def _renamed(dataset: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Return name in 0.6 -> (name before, value)."""
    found: dict[str, tuple[str, Any]] = {}
    if _SPECS in dataset:
        specs = dataset[_SPECS] if _asks_for_packs(dataset[_SPECS]) else None
        found["enable_offline_packing"] = (_SPECS, specs is not None)
        found["offline_packing_specs"] = (_SPECS, specs)
    if _IN_BATCH in dataset:
        found["enable_in_batch_packing"] = (_IN_BATCH, dataset[_IN_BATCH])
    if _LENGTH in dataset:
        found["seq_length"] = (_LENGTH, dataset[_LENGTH])
    return found


def _asks_for_packs(specs: Any) -> bool:
    """Say whether specs turn packing on: they do where their size is positive, which is -1 by default.

    Source: megatron/bridge/training/config.py:1212 of 0.4.2.
    """
    if not isinstance(specs, Mapping):
        return specs is not None
    size = specs.get("packed_sequence_size", -1)
    return type(size) is not int or size > 0


_LOADER: Mapping[str, Any] = {"num_workers": 2, "drop_last": True}
_TEXT: Mapping[str, Any] = {**_LOADER, "dataloader_type": "batch", "seed": 1234, "do_validation": True, "do_test": True}
_COLLATE: Mapping[str, Any] = {**_LOADER, "pad_to_multiple_of": 128, "in_batch_packing_pad_to_multiple_of": 1}
#: Class -> field -> default.
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("GPTSFTDatasetConfig", "FinetuningDatasetConfig", "HFDatasetConfig"), _TEXT),
    "DirectHFSFTDatasetConfig": {
        **_COLLATE,
        "dataloader_type": "cyclic",
        "do_validation": True,
        "do_test": True,
        "skip_getting_attention_mask_from_dataset": True,
    },
    "EnergonDatasetConfig": {
        **_COLLATE,
        "dataloader_type": "external",
        "do_validation": True,
        "shuffle_buffer_size": 100,
    },
    "MockVLMSFTDatasetConfig": {
        **_COLLATE,
        "dataloader_type": "single",
        "skip_getting_attention_mask_from_dataset": True,
    },
    "PackedSequenceSpecs": {"packed_sequence_size": -1, "num_tokenizer_workers": -1, "pad_seq_to_mult": 1},
    "ValidationConfig": {"eval_iters": 100},
    "RerunStateMachineConfig": {"check_for_nan_in_loss": True},
    "DistributedInitConfig": {"distributed_timeout_minutes": 10},
    "RNGConfig": {"seed": 1234},
}


def with_host_defaults(config: RunConfig) -> RunConfig:
    """Return the settings with the host's defaults where a saved config leaves them out, as loading it gives.

    Settings that are not complete stay as they are: what they leave out comes from elsewhere.

    Example: `offline_packing_specs {_target_: ...PackedSequenceSpecs, packed_sequence_size: 4096}` -> besides,
    `pad_seq_to_mult` 1.
    """
    if not config.is_complete:
        return config
    values = {name: _filled(section) for name, section in config.values.items()}
    return replace(config, values=values)


def _filled(section: Any) -> Any:
    if not isinstance(section, Mapping):
        return section
    name = str(section.get("_target_")).rpartition(".")[2]
    nested = {key: _filled(value) for key, value in section.items() if _is_object(value)}
    return {**DEFAULTS.get(name, {}), **section, **nested} if nested or name in DEFAULTS else section


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping) and str(value.get("_target_")).rpartition(".")[2] in DEFAULTS
