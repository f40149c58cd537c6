"""Defaults of the host's classes that rules read in a saved config, as `defaults` in the file of a release."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from bridgepack.bridge.imports import import_by_name
from bridgepack.bridge.plain import plain_values
from bridgepack.host import HostRelease
from bridgepack.host.names import class_in

_BUILDERS, _CONFIG = "megatron.bridge.data.builders", "megatron.bridge.training.config"
_LOADER = ("num_workers", "drop_last")
_SPLITS = ("do_validation", "do_test")
_GPT = (*_LOADER, "dataloader_type", "seed", *_SPLITS)
_PADDED = ("pad_to_multiple_of", "in_batch_packing_pad_to_multiple_of")
_MASKED = "skip_getting_attention_mask_from_dataset"
#: Class under its canonical name -> fields that rules read where a saved config may be without them.
FIELDS: Mapping[str, tuple[str, ...]] = {
    f"{_BUILDERS}.gpt_sft.GPTSFTDatasetConfig": _GPT,
    f"{_BUILDERS}.gpt_sft.FinetuningDatasetConfig": _GPT,
    f"{_BUILDERS}.direct_hf_sft.DirectHFSFTDatasetConfig": (*_LOADER, *_PADDED, _MASKED, "dataloader_type", *_SPLITS),
    f"{_BUILDERS}.energon.EnergonDatasetConfig": (
        *(*_LOADER, *_PADDED, "do_validation", "dataloader_type", "shuffle_buffer_size"),
    ),
    f"{_BUILDERS}.mock_vlm_sft.MockVLMSFTDatasetConfig": (*_LOADER, *_PADDED, _MASKED, "dataloader_type"),
    "megatron.bridge.data.packing.config.PackedSequenceSpecs": (
        *("packed_sequence_size", "num_tokenizer_workers", "pad_seq_to_mult"),
    ),
    f"{_CONFIG}.ValidationConfig": ("eval_iters",),
    f"{_CONFIG}.RerunStateMachineConfig": ("check_for_nan_in_loss",),
    f"{_CONFIG}.DistributedInitConfig": ("distributed_timeout_minutes",),
    f"{_CONFIG}.RNGConfig": ("seed",),
}


def defaults_of(name: str, fields: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the defaults of a class as plain values, of some fields or of all that have one."""
    module, _, attribute = name.rpartition(".")
    declared = {one.name: one for one in dataclasses.fields(getattr(import_by_name(module), attribute))}
    chosen = declared if fields is None else fields
    holder = type("Holder", (), {})()
    holder.__dict__.update({one: _default(declared[one]) for one in chosen if not _is_required(declared[one])})
    values = plain_values(holder)
    return {name: value for name, value in values.items() if name != "_target_"}


def read_defaults(release: HostRelease) -> dict[str, dict[str, Any]]:
    """Return class, without its module -> field -> default."""
    classes = {class_in(release, name): fields for name, fields in FIELDS.items()}
    return {name.rpartition(".")[2]: defaults_of(name, fields) for name, fields in classes.items()}


def _is_required(field: Any) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _default(field: Any) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
