"""Settings in the paths of megatron-bridge 0.6.2 as those of another version, with what is lost on the way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from bridgepack.bridge.wiring import SPECS, Setting
from bridgepack.records import TRAIN, VALIDATION
from bridgepack.releases import HostRelease, installed_host, packed_file_name, release_of

_DATASET = "dataset"
_PATHS = {TRAIN: f"{SPECS}.packed_train_data_path", VALIDATION: f"{SPECS}.packed_val_data_path"}
_SIZE, _MULTIPLE, _PADS_OFFSETS = (
    f"{SPECS}.{name}" for name in ("packed_sequence_size", "pad_seq_to_mult", "pad_cu_seqlens")
)
#: What an absent setting falls back to, where that is another setting.
_FALLBACKS = {
    "validation.eval_global_batch_size": "train.global_batch_size",
    "validation.eval_micro_batch_size": "train.micro_batch_size",
    "dist.eval_context_parallel_size": "model.context_parallel_size",
}
#: Absent settings that say how packs are made: packs that exist are the same without them.
_MAKE_PACKS = ("dataset.preprocessing", f"{SPECS}.max_single_sequence_length", "tokenizer.chat_template_path")
_SWITCH = "dataset.enable_offline_packing"


@dataclass(frozen=True, kw_only=True, slots=True)
class LostSetting:
    """A setting that a version has no place for, and that would change the run.

    Attributes:
        setting: in the paths of 0.6.2.
        instead: what this version does.
    """

    setting: Setting
    instead: str


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionSettings:
    """Settings under the names of one version.

    Attributes:
        bridge_version: of megatron-bridge.
        release: what is known of it.
        settings: in its paths, each once; where a value differs from the recipe's, `because` says why.
        lost: what it has no place for, where that matters.
    """

    bridge_version: str
    release: HostRelease
    settings: tuple[Setting, ...]
    lost: tuple[LostSetting, ...]

    @property
    def dataset(self) -> tuple[Setting, ...]:
        """Those of the dataset, its specs included."""
        return tuple(setting for setting in self.settings if _is_below(setting.path, _DATASET))

    @property
    def others(self) -> tuple[Setting, ...]:
        """Those of everything but the dataset."""
        return tuple(setting for setting in self.settings if not _is_below(setting.path, _DATASET))

    def values(self) -> dict[str, Any]:
        """Return path -> value."""
        return {setting.path: setting.value for setting in self.settings}


def settings_for(settings: Iterable[Setting], bridge_version: str | None = None) -> VersionSettings:
    """Return a recipe's settings as a version of Megatron-Bridge takes them.

    Packs are named in the form that `bridgepack export` gives them for this version. What a version needs to slice
    packs over context-parallel ranks is set, too: see `_for_context_parallelism`.

    Args:
        settings: of `host_settings`, with packs.
        bridge_version: e.g. `0.5.1`; by default the installed one.

    Raises:
        ConfigError: the version is none or too old, or none is given and none is installed.
    """
    version = bridge_version or installed_host()
    release = release_of(version)
    found = {setting.path: setting for setting in settings}
    found = _with_one_offset_array(_for_context_parallelism(_with_files(found, release), release), release)
    kept, lost = [], []
    for path, setting in found.items():
        instead = _looked_up(path, release.absent)
        if instead is None:
            kept.append(replace(setting, path=_renamed(path, release)))
        elif _matters(setting, found):
            lost.append(LostSetting(setting=setting, instead=instead))
    return VersionSettings(bridge_version=version, release=release, settings=tuple(kept), lost=tuple(lost))


def _with_files(found: Mapping[str, Setting], release: HostRelease) -> dict[str, Setting]:
    """Name files where the release reads no folders."""
    result = dict(found)
    if release.pack_format != "npy" or _SIZE not in found:
        return result
    for split, path in _PATHS.items():
        setting = found.get(path)
        if setting is not None and setting.value is not None and PurePath(setting.value).suffix != ".npy":
            value = f"{setting.value}/{packed_file_name(split, found[_SIZE].value)}"
            result[path] = replace(setting, value=value, because="this version reads one .npy file for each split")
    return result


def _for_context_parallelism(found: Mapping[str, Setting], release: HostRelease) -> dict[str, Setting]:
    """Pad offsets to one length, with context parallelism, where -1 would fill up the shorter rows of a batch.

    Up to 0.5.0 the offsets of a row, filled up with -1 to the longest of its batch, go to TransformerEngine's slicing
    as they are. It looks for the sequence of a token by bisection, so several -1 at the end lead it astray; the single
    one that stays behind offsets of one length is never looked at.

    Source: megatron-bridge pull request 4489; TransformerEngine, common/fused_attn/context_parallel.cu
    (thd_partition_indices_kernel).
    """
    result = dict(found)
    size = found.get("model.context_parallel_size")
    if release.trims_offsets or size is None or size.value == 1 or not _names_packs(found):
        return result
    because = "rows filled up with -1 would be sliced wrongly over context-parallel ranks by this version"
    result[_PADS_OFFSETS] = _set(found, _PADS_OFFSETS, True, because)
    return result


def _with_one_offset_array(found: Mapping[str, Setting], release: HostRelease) -> dict[str, Setting]:
    """Leave out logical offsets where they would not have the padded length of the physical ones.

    Physical offsets are right alone: alignment padding stands at a sequence's end, where causal attention never looks.
    Packs that exist keep their alignment whatever `pad_seq_to_mult` says here.

    Source: megatron-bridge 0.5.1, data/datasets/sft.py (GPTSFTPackedDataset.collate_fn).
    """
    result = dict(found)
    pads = found.get(_PADS_OFFSETS)
    if release.pads_both_offsets or pads is None or not pads.value or not _names_packs(found):
        return result
    because = "this version pads physical offsets only; without a multiple it makes no logical ones"
    result[_MULTIPLE] = _set(found, _MULTIPLE, 1, because)
    return result


def _set(found: Mapping[str, Setting], path: str, value: Any, because: str) -> Setting:
    before = found.get(path)
    if before is not None and before.value == value:
        return before
    return Setting(path=path, value=value, origin="derived", field=before.field if before else "", because=because)


def _names_packs(found: Mapping[str, Setting]) -> bool:
    setting = found.get(_PATHS[TRAIN])
    return setting is not None and setting.value is not None


def _matters(setting: Setting, found: Mapping[str, Setting]) -> bool:
    """Say whether a run without the setting would be another one."""
    if not setting.value or setting.path == _SWITCH:
        return False
    if _names_packs(found) and any(_is_below(setting.path, known) for known in _MAKE_PACKS):
        return False
    fallback = found.get(_FALLBACKS.get(setting.path, ""))
    return fallback is None or fallback.value != setting.value


def _renamed(path: str, release: HostRelease) -> str:
    for known, name in release.renamed.items():
        if _is_below(path, known):
            return name + path[len(known) :]
    return path


def _looked_up(path: str, absent: Mapping[str, str]) -> str | None:
    return next((instead for known, instead in absent.items() if _is_below(path, known)), None)


def _is_below(path: str, known: str) -> bool:
    return path == known or path.startswith(f"{known}.")
