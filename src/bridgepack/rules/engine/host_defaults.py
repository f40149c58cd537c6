"""What the host's classes have where a saved config leaves a field out; only fields whose default is not off or None.

Source: the dataclasses of megatron-bridge 0.6.2 and megatron-core 0.19.2 that the names are of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bridgepack.records import RunConfig

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
