"""Predicts each step from a run's packs: the packs read, their boundaries and trained tokens."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bridgepack.bridge.replay_settings import replay_settings
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.bridge_metadata import BRIDGE_METADATA_FILE, read_bridge_metadata
from bridgepack.errors import ConfigError
from bridgepack.host import HostRelease
from bridgepack.records import TRAIN, Manifest, PackedRow, RunConfig
from bridgepack.replay.collate import (
    DEFAULT_PAD_SEQ_LENGTH_TO_MULT,
    CollateMetadata,
    CollateSettings,
    padding_row,
    predict_batch,
)
from bridgepack.replay.order import FILLER, PackOrder
from bridgepack.running.guard.facts import Boundaries, PlannedStep

_SPECS = "offline_packing_specs"
#: Options of the host's packed dataset that the prediction supports.
_KNOWN_OPTIONS = frozenset({"pad_to_max_length", "pad_seq_length_to_mult", "max_num_samples"})
_DATASET = "GPTSFTDatasetConfig"


class Planner:
    """Predicts a replica's step from the artifact and a replay of the host's loader."""

    def __init__(
        self,
        config: RunConfig,
        artifact: Path,
        *,
        world_size: int,
        version: str,
        num_steps_done: int,
        num_packs_read: int,
    ) -> None:
        """Read the manifest and replay the loader up to the start; `num_*` come from the checkpoint, 0 without one.

        Raises:
            ConfigError: the way the run reads its packs cannot be predicted; the message says why.
            ArtifactError: the folder is not an artifact of bridgepack.
        """
        dataset = config.values["dataset"]
        _check_predictable(dataset, artifact)
        self._artifact = Artifact(artifact, may_be_changed=True)  # opened by every rank
        manifest = self._artifact.manifest
        settings = replay_settings(
            config,
            num_packs={split.name: split.statistics.num_packs for split in manifest.splits},
            world_size=world_size,
            version=version,
            resume_step=num_steps_done,
        )
        self.order = PackOrder(replace(settings, consumed_packs=num_packs_read))
        self._collate = _collate_settings(dataset, manifest, artifact, settings.host)

    def plan_step(self, step: int, data_parallel_rank: int) -> PlannedStep:
        """Return what a data-parallel replica should compute in a step.

        Raises:
            ConfigError: the host has no such step.
            ArtifactError: a pack cannot be read.
        """
        batches = self.order.micro_batches_at(step, data_parallel_rank)
        packs = [int(pack) for batch in batches for pack in batch]
        prediction = predict_batch([self._row(pack) for pack in packs], self._collate)
        is_trained = prediction.loss_mask != 0
        return PlannedStep(
            packs=tuple(" + ".join("filler" if pack == FILLER else str(pack) for pack in batch) for batch in batches),
            boundaries=tuple(
                Boundaries.from_offsets(physical.astype(np.int64), logical.astype(np.int64))
                for physical, logical in zip(prediction.physical_offsets, prediction.cu_seqlens, strict=True)
            ),
            trained=tuple(int(row.sum()) for row in is_trained),
            labels=int(prediction.labels[is_trained].sum()),
        )

    def _row(self, pack: int) -> PackedRow:
        if pack == FILLER:
            return padding_row(self._artifact.row(TRAIN, self.order.filler_pack))
        return self._artifact.row(TRAIN, pack)


def _check_predictable(dataset: Mapping[str, Any], artifact: Path) -> None:
    kind = str(dataset.get("_target_", "")).rpartition(".")[2]
    if kind != _DATASET or not dataset.get("enable_offline_packing"):
        raise ConfigError(f"the run does not read packs of an artifact ({kind or 'no dataset'}).")
    train = dataset[_SPECS].get("packed_train_data_path")
    if train is None or Path(str(train)).resolve() != (artifact / TRAIN).resolve():
        raise ConfigError(f"the run reads {train}, not {artifact / TRAIN}.")
    options = sorted(set(dataset.get("dataset_kwargs") or {}) - _KNOWN_OPTIONS)
    if options:
        raise ConfigError(f"dataset.dataset_kwargs.{options[0]} is set, which changes batches.")


def _collate_settings(
    dataset: Mapping[str, Any], manifest: Manifest, artifact: Path, release: HostRelease
) -> CollateSettings:
    specs, options = dataset[_SPECS], dataset.get("dataset_kwargs") or {}
    pads_offsets = bool(specs.get("pad_cu_seqlens"))
    entries = read_bridge_metadata(artifact / BRIDGE_METADATA_FILE) if pads_offsets else []
    return CollateSettings(
        release=release,
        packed_sequence_size=specs["packed_sequence_size"],
        pad_seq_to_mult=specs.get("pad_seq_to_mult") or 1,
        eos_token_id=int(manifest.tokenizer["eos_token_id"]),
        pad_to_max_length=bool(options.get("pad_to_max_length")),
        pad_seq_length_to_mult=options.get("pad_seq_length_to_mult") or DEFAULT_PAD_SEQ_LENGTH_TO_MULT,
        pad_cu_seqlens=pads_offsets,
        metadata=CollateMetadata.from_entries(entries) if entries else None,
    )
