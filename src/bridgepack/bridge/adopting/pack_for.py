"""Corrects a user's own ConfigContainer for packs, and returns the changes with reasons."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bridgepack import geometry
from bridgepack.bridge.adopting.corrections import correct, findings_on
from bridgepack.bridge.container import is_container
from bridgepack.bridge.inherited import prediction_settings
from bridgepack.bridge.live import copy_of, has_setting, place_in, value_in
from bridgepack.bridge.plain import value_at
from bridgepack.bridge.shipped import installed_release
from bridgepack.bridge.wiring import LOSS_SETTINGS, SPECS, Setting, derived_setting
from bridgepack.bridge.writing.assign import assign
from bridgepack.bridge.writing.write import new_specs
from bridgepack.data.artifact.manifest import read_manifest
from bridgepack.errors import ConfigError
from bridgepack.records import TRAIN, VALIDATION, Change, Finding
from bridgepack.records.words import kind_of
from bridgepack.rules.judging.subject import TEXT_DATASETS

_OFFLINE, _IN_BATCH = "dataset.enable_offline_packing", "dataset.enable_in_batch_packing"
_SIZE = "dataset.seq_length"
_HUB_FIELDS = ("hf_dataset", "hf_validation_dataset", "hf_test_dataset", "hf_output_root", "hf_validation_proportion")
#: Kinds of parallelism whose ranks share one copy of the model and its rows.
_MODEL_PARALLEL = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
#: Rules on models that do not support packs, or are not trained with them upstream.
_REFUSALS = frozenset({"BP901", "BP902", "BP903", "BP915", "BP917"})


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedConfig:
    """A config that trains packs.

    Attributes:
        changes: the changes, each path once.
        findings: the remaining errors and warnings, which no safe change fixes.
    """

    config: Any
    changes: tuple[Change, ...]
    findings: tuple[Finding, ...]


def pack_for(config: Any, artifact: str | Path | None = None, world_size: int | None = None) -> PackedConfig:
    """Return a copy of a ConfigContainer that trains packs, with the changes and their reasons.

    Text is packed before the run, or read from an artifact; images and sound are packed in the batch.

    Example: `finetune(pack_for(config, "artifacts/mine").config, forward_step)`.

    Args:
        config: a ConfigContainer; it is not changed.
        artifact: folder of packs that the run will read.
        world_size: number of GPUs.

    Raises:
        ConfigError: the model does not support packs, or the data cannot be packed.
        ArtifactError: the folder is not an artifact.
    """
    if not is_container(config):
        raise ConfigError(f"config is {kind_of(config)}; allowed: a ConfigContainer. Pass one.")
    packed_config = copy_of(config)
    if type(packed_config.dataset).__name__ in TEXT_DATASETS:
        settings = _offline_settings(packed_config, Path(artifact) if artifact is not None else None)
    else:
        settings = _in_batch_settings(packed_config, artifact, world_size)
    changes_by_path = {item.path: item for item in _write(packed_config, settings)}
    changes_by_path |= {item.path: item for item in _write(packed_config, prediction_settings(packed_config))}
    for finding in findings_on(packed_config, world_size=world_size, codes=_REFUSALS):
        raise ConfigError(
            f"{finding.where} is {finding.found}; allowed: {finding.allowed} ({finding.code}). "
            "Train this model without packing, as its recipes do."
        )
    for item in correct(packed_config, world_size=world_size):
        changes_by_path[item.path] = replace(item, old=changes_by_path.get(item.path, item).old)
    changes = tuple(item for item in changes_by_path.values() if item.old != item.value)
    return PackedConfig(
        config=packed_config, changes=changes, findings=findings_on(packed_config, world_size=world_size)
    )


def _write(config: Any, settings: Iterator[Setting]) -> Iterator[Change]:
    for setting in settings:
        place = place_in(config, setting.path)
        old = value_at(config, place)
        if old != setting.value or type(old) is not type(setting.value):
            assign(config, [replace(setting, path=place)])
            yield Change(path=setting.path, old=old, value=setting.value, why=setting.because)


def _offline_settings(config: Any, artifact: Path | None) -> Iterator[Setting]:
    size = value_in(config, _SIZE)
    if not value_in(config, _OFFLINE):
        yield derived_setting(_OFFLINE, True, "sequences of text are packed before the run")
        yield derived_setting(SPECS, new_specs(installed_release(), size), f"packs of dataset.seq_length, {size}")
    elif artifact is None and value_in(config, f"{SPECS}.packed_train_data_path") is None:
        yield derived_setting(f"{SPECS}.packed_sequence_size", size, "as dataset.seq_length; nothing is packed yet")
    if artifact is not None:
        yield from _artifact_settings(artifact)
    yield derived_setting("dataset.dataset_kwargs.pad_to_max_length", True, "packs of one width, for every kernel")
    yield derived_setting("dataset.do_test", False, "the host never packs a test split")
    yield from LOSS_SETTINGS


def _artifact_settings(folder: Path) -> Iterator[Setting]:
    manifest = read_manifest(folder)
    has_validation = VALIDATION in {split.name for split in manifest.splits}
    because = "the packs of the artifact"
    for path in ("model.seq_length", _SIZE, f"{SPECS}.packed_sequence_size"):
        yield derived_setting(path, manifest.packed_sequence_size, "as the packs were made")
    yield derived_setting(f"{SPECS}.pad_seq_to_mult", manifest.pad_seq_to_mult, "as the packs were made")
    yield derived_setting(f"{SPECS}.packed_train_data_path", str(folder / TRAIN), because)
    yield derived_setting(
        f"{SPECS}.packed_val_data_path", str(folder / VALIDATION) if has_validation else None, because
    )
    yield derived_setting(f"{SPECS}.packed_metadata_path", folder / "bridge_metadata.json", because)
    for name in _HUB_FIELDS:
        yield derived_setting(f"dataset.{name}", None, "the packs are read, and nothing from the hub")
    yield derived_setting("dataset.hf_rewrite", False, "the packs are read, and nothing from the hub")
    yield derived_setting("dataset.dataset_root", str(folder), "the host wants one source; nothing in it is read")
    yield derived_setting("dataset.do_validation", has_validation, "whether the artifact has validation packs")


def _in_batch_settings(config: Any, artifact: str | Path | None, world_size: int | None) -> Iterator[Setting]:
    kind = type(config.dataset).__name__
    if not has_setting(config, _IN_BATCH) or artifact is not None:
        reads = "reads no packs; leave artifact out" if artifact is not None else "cannot pack"
        raise ConfigError(f"dataset is a {kind}, which {reads}. Allowed for text: a GPTSFTDatasetConfig.")
    yield derived_setting(_IN_BATCH, True, "sequences are packed in each micro batch")
    if value_in(config, "train.micro_batch_size") == 1:
        yield derived_setting("train.micro_batch_size", 2, "a micro batch is one pack, of two sequences or more")
        yield from _batch_of_two(config, world_size)
    yield from LOSS_SETTINGS


def _batch_of_two(config: Any, world_size: int | None) -> Iterator[Setting]:
    """Yield a global batch size that is a multiple of micro batches of two rows, also for evaluation."""
    ranks = geometry.model_parallel_size(**{name: value_in(config, f"model.{name}") for name in _MODEL_PARALLEL})
    unit = 2 * max((world_size or ranks) // ranks, 1)
    because = f"a multiple of {unit}, two packs on each data-parallel rank"
    for path in ("train.global_batch_size", "validation.eval_global_batch_size"):
        size = value_in(config, path)
        if size is not None and size % unit:
            yield derived_setting(path, -(-size // unit) * unit, because)
    if value_in(config, "validation.eval_micro_batch_size") == 1:
        yield derived_setting("validation.eval_micro_batch_size", 2, "as in training")
