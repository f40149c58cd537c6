"""A recipe's settings under the names of megatron-bridge 0.3 to 0.5, which `releases` lists; packs must exist."""

import dataclasses
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from bridgepack.bridge.plain import value_at
from bridgepack.bridge.wiring import SPECS, Setting, derived
from bridgepack.errors import ConfigError
from bridgepack.host.release import HostRelease, packed_file_name
from bridgepack.records import TRAIN, VALIDATION

_PATHS = {TRAIN: f"{SPECS}.packed_train_data_path", VALIDATION: f"{SPECS}.packed_val_data_path"}
#: Missing setting -> the setting that it falls back to.
_FALLBACKS = {
    "validation.eval_global_batch_size": "train.global_batch_size",
    "validation.eval_micro_batch_size": "train.micro_batch_size",
    "dist.eval_context_parallel_size": "model.context_parallel_size",
}
#: Absent settings that say how packs are made, or that there are some: packs that exist are the same without them.
_MAKE_PACKS = (
    "dataset.preprocessing",
    "dataset.enable_offline_packing",
    f"{SPECS}.max_single_sequence_length",
    "tokenizer.chat_template_path",
)


def older_settings(settings: Iterable[Setting], release: HostRelease) -> tuple[Setting, ...]:
    """Return a recipe's settings for an older release, with packs in the format of `export`.

    Raises:
        ConfigError: packs are not on disk, or the release does not support a setting that would change the run.
    """
    found = {setting.path: setting for setting in settings}
    if f"{SPECS}.packed_sequence_size" not in found:
        raise ConfigError(
            f"packing.mode is not offline; megatron-bridge {release.versions} reads packs from disk alone. Set offline."
        )
    if release.pack_format == "npy":
        _name_files(found)
    _fit_offsets(found, release)
    return tuple(
        dataclasses.replace(setting, path=_renamed(path, release))
        for path, setting in found.items()
        if _has_place(setting, found, release)
    )


def look_up_packs(config: Any, release: HostRelease) -> None:
    """Let the host's own class validate the packing specs, which were set one by one.

    Raises:
        ConfigError: the class refuses them, e.g. because the packs do not exist.
    """
    section, _, name = release.specs_path.rpartition(".")
    try:
        setattr(value_at(config, section), name, dataclasses.replace(value_at(config, release.specs_path)))
    except (OSError, TypeError, ValueError, AssertionError) as error:
        raise ConfigError(
            f"{release.specs_path}: {error}. megatron-bridge {release.versions} wants the packs to exist: "
            "write them with `bridgepack export` and give their folder as artifact."
        ) from error


def _name_files(found: dict[str, Setting]) -> None:
    for split, path in _PATHS.items():
        setting = found.get(path)
        if setting is not None and setting.value is not None and PurePath(setting.value).suffix != ".npy":
            name = packed_file_name(split, found[f"{SPECS}.packed_sequence_size"].value)
            found[path] = dataclasses.replace(setting, value=f"{setting.value}/{name}")


def _fit_offsets(found: dict[str, Setting], release: HostRelease) -> None:
    """Give offsets one length with context parallelism, and leave logical ones out where they would have another.

    Up to 0.5.0 offsets filled up with -1 go to TransformerEngine's slicing as they are. It looks for the sequence of a
    token by bisection, which several -1 at the end lead astray. Before 0.6 padding makes physical offsets longer, not
    logical ones; physical ones are right alone, as alignment padding stands where causal attention never looks.

    Source: megatron-bridge pull request 4489; 0.5.1, data/datasets/sft.py (GPTSFTPackedDataset.collate_fn);
    TransformerEngine, common/fused_attn/context_parallel.cu (thd_partition_indices_kernel).
    """
    pads, multiple = f"{SPECS}.pad_cu_seqlens", f"{SPECS}.pad_seq_to_mult"
    if not release.trims_offsets and found["model.context_parallel_size"].value > 1:
        because = "this release slices rows filled up with -1 wrongly over context-parallel ranks"
        found[pads] = derived(pads, True, because, found[pads].field)
    if not release.pads_both_offsets and found[pads].value:
        because = "this release pads physical offsets only; without a multiple it makes no logical ones"
        found[multiple] = derived(multiple, 1, because, found[multiple].field)


def _has_place(setting: Setting, found: dict[str, Setting], release: HostRelease) -> bool:
    """Return whether a release has a setting; raise `ConfigError` if a missing one would change the run."""
    instead = next((text for known, text in release.absent.items() if _is_below(setting.path, known)), None)
    if instead is None:
        return True
    fallback = found.get(_FALLBACKS.get(setting.path, ""))
    if (
        setting.value
        and not any(_is_below(setting.path, known) for known in _MAKE_PACKS)
        and (fallback is None or fallback.value != setting.value)
    ):
        raise ConfigError(
            f"{setting.place} is {setting.value!r}; megatron-bridge {release.versions} has no place for it: "
            f"{instead}. Change it, or upgrade megatron-bridge."
        )
    return False


def _renamed(path: str, release: HostRelease) -> str:
    for known, name in release.renamed.items():
        if _is_below(path, known):
            return name + path[len(known) :]
    return path


def _is_below(path: str, known: str) -> bool:
    return path == known or path.startswith(f"{known}.")
