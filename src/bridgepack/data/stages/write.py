"""What became of the ranges -> a whole artifact in a build's working folder: plans, shards, ledger, manifest last."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridgepack.config.recipe.recipe import ResolvedRecipe
from bridgepack.data import output as staging
from bridgepack.data.artifact.artifact import DROPPED_ROWS_FILE, PLAN_FOLDER
from bridgepack.data.artifact.bridge_metadata import BRIDGE_METADATA_FILE, bridge_metadata_entry, write_bridge_metadata
from bridgepack.data.artifact.manifest import FORMAT_VERSION, write_manifest
from bridgepack.data.files import make_folders
from bridgepack.data.sequences.over_long import OverLongPolicy
from bridgepack.data.stages import ledger
from bridgepack.data.stages import split as splits
from bridgepack.data.stages.finish import FinishSettings
from bridgepack.data.stages.range_tasks import RangeResult
from bridgepack.data.stages.shard_tasks import WriteTask, WrittenShard, write_planned_shard
from bridgepack.data.tasks import Progress, Runner, TaskFailure, result_of
from bridgepack.records import TRAIN, VALIDATION, InputRecord, Manifest, ShardRecord, SplitRecord

#: Times that a shard is begun again because its process ended.
_MAX_TRIES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class ArtifactSpec:
    """What an artifact is to be.

    Attributes:
        resolved: the recipe with derived values.
        fingerprint: of the artifact.
        tokenizer: its identity.
        versions: of what makes its rows.
        inputs: split that files are of -> their records.
        build: what finished shards belong to, besides their rows.
    """

    resolved: ResolvedRecipe
    fingerprint: str
    tokenizer: Mapping[str, Any]
    versions: Mapping[str, str]
    inputs: Mapping[str, tuple[InputRecord, ...]]
    build: str

    def finish_settings(self, source: str, folder: Path) -> FinishSettings:
        """Return what happens to the sequences of a split's files.

        Args:
            source: split that the files are of.
            folder: working folder of the build.

        Raises:
            TokenizerError: when special tokens alone fill a sequence.
        """
        recipe = self.resolved.recipe
        return FinishSettings(
            policy=OverLongPolicy.of(self.resolved, self.tokenizer),
            split=source,
            validation_fraction=recipe.data.validation_fraction if source == TRAIN else 0.0,
            seed=recipe.packing.seed,
            stops_at_bad_rows=recipe.data.on_bad_row == "error",
            folder=folder / staging.WORK,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ArtifactWriter:
    """Writes one artifact.

    Attributes:
        spec: what it is to be.
        folder: working folder of the build.
        runner: runs the tasks.
        progress: told how far it is.
        watch: told of each shard as it comes.
    """

    spec: ArtifactSpec
    folder: Path
    runner: Runner
    progress: Progress
    watch: Callable[[WrittenShard], None]

    def write(self, results: Mapping[str, Sequence[RangeResult]]) -> Manifest:
        """Write the artifact and return its manifest.

        Args:
            results: split that files are of -> what became of their ranges, in order.

        Raises:
            DataError: when a split has no sequence, or a worker cannot be kept alive.
            OSError: when something cannot be written.
        """
        artifact = self.folder / staging.ARTIFACT
        tokenized = []
        for source, ranges in results.items():
            inputs = self.spec.inputs[source]
            names = (source, VALIDATION) if self._is_parted(source) else (source,)
            tokenized += [splits.gather_split(name, inputs, ranges) for name in names]
        make_folders(artifact / PLAN_FOLDER)
        records = [self._write_split(split) for split in tokenized]
        ledger.write_dropped_rows(artifact / PLAN_FOLDER / DROPPED_ROWS_FILE, [split.drops for split in tokenized])
        size = self.spec.resolved.recipe.packing.packed_sequence_size
        entries = [bridge_metadata_entry(record.statistics, packed_sequence_size=size) for record in records]
        write_bridge_metadata(artifact / BRIDGE_METADATA_FILE, entries)
        manifest = self._manifest(records)
        write_manifest(artifact, manifest)
        return manifest

    def _is_parted(self, source: str) -> bool:
        return source == TRAIN and self.spec.resolved.recipe.data.validation_fraction > 0

    def _write_split(self, split: splits.TokenizedSplit) -> SplitRecord:
        artifact, resolved = self.folder / staging.ARTIFACT, self.spec.resolved
        self.progress.start(f"Packing {split.name}", split.num_sequences, "sequences")
        plan = splits.plan_split(split, resolved)
        self.progress.advance(split.num_sequences)
        self.progress.finish()
        for folder in (artifact, self.folder / staging.RECEIPTS):
            make_folders(folder / split.name)
        eos_token_id = int(self.spec.tokenizer["eos_token_id"])
        tasks = (
            WriteTask(
                plan=shard,
                token_files=split.token_files,
                receipt=self.folder / staging.RECEIPTS / f"{shard.name}.json",
                build=self.spec.build,
            )
            for shard in splits.shard_plans(split, plan, resolved, artifact, eos_token_id)
        )
        self.progress.start(f"Writing {split.name}", plan.num_packs, "packs")
        shards = self._write_shards(tasks)
        self.progress.finish()
        splits.write_provenance(artifact / PLAN_FOLDER / f"{split.name}.parquet", split, plan)
        return SplitRecord(
            name=split.name,
            inputs=split.inputs,
            shards=tuple(shards),
            statistics=splits.split_statistics(split, plan, resolved.pad_seq_to_mult.value),
            drops=split.drops.most_common(),
            drop_examples=split.drops.examples,
        )

    def _write_shards(self, tasks: Iterable[WriteTask]) -> list[ShardRecord]:
        shards = []
        for outcome in self.runner.run(write_planned_shard, tasks):
            written = result_of(self._again(outcome) if isinstance(outcome, TaskFailure) else outcome)
            self.progress.advance(written.record.num_rows)
            self.watch(written)
            shards.append(written.record)
        return shards

    def _again(self, failure: TaskFailure) -> WrittenShard | TaskFailure:
        """Return what becomes of a shard whose process ended, begun again alone."""
        outcome: WrittenShard | TaskFailure = failure
        for _ in range(_MAX_TRIES):
            if not isinstance(outcome, TaskFailure) or outcome.trace:
                return outcome
            outcome = self.runner.run_alone(write_planned_shard, failure.task)
        return outcome

    def _manifest(self, records: Sequence[SplitRecord]) -> Manifest:
        resolved = self.spec.resolved
        return Manifest(
            format_version=FORMAT_VERSION,
            fingerprint=self.spec.fingerprint,
            packed_sequence_size=resolved.recipe.packing.packed_sequence_size,
            pad_seq_to_mult=resolved.pad_seq_to_mult.value,
            tokenizer=self.spec.tokenizer,
            recipe=resolved.recipe.model_dump(mode="json"),
            resolved=resolved.explain(),
            splits=tuple(records),
            versions=self.spec.versions,
        )
