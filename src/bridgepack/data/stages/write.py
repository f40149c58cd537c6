"""Writes an artifact from ranges, in the working folder: plans, shards, ledger, manifest last; no row twice."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bridgepack.config.recipe.data import source_entries
from bridgepack.config.recipe.packing import PackingConfig
from bridgepack.config.recipe.resolved import ResolvedRecipe
from bridgepack.data import output as staging
from bridgepack.data.artifact.artifact import (
    DROPPED_ROWS_FILE,
    LOST_CONTENT_FILE,
    PLAN_FOLDER,
    digests_file,
    other_files,
)
from bridgepack.data.artifact.bridge_metadata import BRIDGE_METADATA_FILE, bridge_metadata_entry, write_bridge_metadata
from bridgepack.data.artifact.digests import write_digests
from bridgepack.data.artifact.manifest import FORMAT_VERSION, write_manifest
from bridgepack.data.files import make_folders
from bridgepack.data.packing.balance import balance_plan
from bridgepack.data.packing.plan import plan_packs, plan_packs_apart
from bridgepack.data.reading.inputs import hash_file
from bridgepack.data.sequences.over_long import SequencePolicy
from bridgepack.data.shards.row_groups import numpy_array
from bridgepack.data.shards.write import ShardPlan, WriteTask, WrittenShard, write_planned_shard
from bridgepack.data.stages.finish import FinishSettings, RangePart, RangePlace, RangeResult, finish_range
from bridgepack.data.stages.mixture import mix_sources
from bridgepack.data.stages.notes import write_ledger
from bridgepack.data.stages.split import (
    TokenizedSplit,
    gather_split,
    shard_plans,
    split_statistics,
    with_pack_counts,
    write_provenance,
)
from bridgepack.data.tasks import Beat, Progress, Runner, TaskFailure, result_of
from bridgepack.geometry import IntArray
from bridgepack.records import (
    SPLITS,
    TRAIN,
    VALIDATION,
    FileRecord,
    InputRecord,
    Manifest,
    PackPlan,
    ServedRecord,
    SkippedFiles,
    SplitRecord,
)

#: Retries of a shard whose process died.
_MAX_TRIES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class ArtifactSpec:
    """Specification of an artifact."""

    resolved: ResolvedRecipe
    fingerprint: str
    tokenizer: Mapping[str, Any]  #: identity of the tokenizer
    versions: Mapping[str, str]  #: versions of the libraries that make its rows
    inputs: Mapping[str, tuple[InputRecord, ...]]  #: split -> records of its files
    #: split -> what its folders have beside them; only splits whose folders have anything
    skipped: Mapping[str, SkippedFiles] = field(default_factory=dict)

    @property
    def num_input_bytes(self) -> int:
        """Size of all input files."""
        return sum(record.num_bytes for records in self.inputs.values() for record in records)

    def policy(self, kind: str | None = None) -> SequencePolicy:
        """Return the policy for rows of a kind; arguments and errors as of `SequencePolicy.of`."""
        return SequencePolicy.of(self.resolved, int(self.tokenizer["eos_token_id"]), kind)

    def finish_settings(self, source: str, folder: Path) -> FinishSettings:
        """Return the settings for the sequences of a split's files; `folder` is the build's working folder.

        Raises:
            TokenizerError: special tokens alone fill a sequence.
        """
        recipe = self.resolved.recipe
        kinds = [kind for kind in recipe.kinds if kind != recipe.preprocessing.kind]
        return FinishSettings(
            policy=self.policy(),
            others={kind: self.policy(kind) for kind in kinds},
            split=source,
            validation_fraction=recipe.data.validation_fraction if source == TRAIN else 0.0,
            seed=recipe.packing.seed,
            stops_at_bad_rows=recipe.data.on_bad_row == "error",
            hashes_rows=recipe.data.deduplicate == "exact",
            stops_at_losses=getattr(recipe.chat_preprocessing, "on_lost_content", "keep") == "error",
            splits_conversations=recipe.splits_conversations,
            folder=folder / staging.WORK,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ArtifactWriter:
    """Writes one artifact in a build's working folder; calls `watch` with each shard."""

    spec: ArtifactSpec
    folder: Path
    runner: Runner
    progress: Progress
    watch: Callable[[WrittenShard], None]

    def write(self, results: dict[str, list[RangeResult]], served_record: ServedRecord | None = None) -> Manifest:
        """Return the manifest of the artifact, written from split -> results of its files' ranges, in order.

        Empties `results`, as `splits` does. `served_record` compares a sample of the answers with what a server sends.

        Raises:
            DataError: a split has no sequences, or workers keep dying.
            OSError: a file cannot be written.
        """
        artifact, resolved_recipe = self.folder / staging.ARTIFACT, self.spec.resolved
        size = resolved_recipe.recipe.packing.packed_sequence_size
        splits = self.splits(results)
        make_folders(artifact / PLAN_FOLDER)
        records = [self._write_split(split) for split in splits]
        write_ledger(
            artifact / PLAN_FOLDER / DROPPED_ROWS_FILE,
            [part for split in splits for part in (split.drops, split.dropped_pieces)],
        )
        write_ledger(artifact / PLAN_FOLDER / LOST_CONTENT_FILE, [split.losses for split in splits])
        entries = [bridge_metadata_entry(record.statistics, packed_sequence_size=size) for record in records]
        write_bridge_metadata(artifact / BRIDGE_METADATA_FILE, entries)
        manifest = Manifest(
            format_version=FORMAT_VERSION,
            fingerprint=self.spec.fingerprint,
            packed_sequence_size=size,
            pad_seq_to_mult=resolved_recipe.pad_seq_to_mult.value,
            tokenizer=self.spec.tokenizer,
            recipe=resolved_recipe.recipe.model_dump(mode="json"),
            resolved=resolved_recipe.explain(),
            splits=tuple(records),
            served=served_record,
            versions=self.spec.versions,
            files=tuple(
                FileRecord(path=name, num_bytes=(artifact / name).stat().st_size, sha256=hash_file(artifact / name))
                for name in other_files(split.name for split in splits)
            ),
        )
        return write_manifest(artifact, manifest)

    def splits(self, results: dict[str, list[RangeResult]]) -> list[TokenizedSplit]:
        """Return the splits, without duplicates and mixed as the recipe says.

        Empties `results`, which would take as much memory as the splits.

        Raises:
            DataError: a split has no sequences.
        """
        settings = {source: self.spec.finish_settings(source, self.folder) for source in results}
        if self.spec.resolved.recipe.data.deduplicate == "exact":
            less = without_duplicates(results, settings, self.runner)
            results.clear()
            results |= less
            less.clear()
        splits: list[TokenizedSplit] = []
        for source in tuple(results):
            parts = self._gather(settings[source], results.pop(source))
            splits += [self._mix(settings[source], parts.pop(0)) for _ in settings[source].splits]
        return splits

    def _gather(self, settings: FinishSettings, ranges: Sequence[RangeResult]) -> list[TokenizedSplit]:
        inputs = self.spec.inputs[settings.split]
        return [gather_split(name, inputs, ranges, splits_rows=settings.splits_rows) for name in settings.splits]

    def _mix(self, settings: FinishSettings, split: TokenizedSplit) -> TokenizedSplit:
        source, recipe = settings.split, self.spec.resolved.recipe
        is_train, aside = source == TRAIN, (settings.validation_fraction, split.name != source)
        sources = recipe.data.train if is_train else recipe.data.validation
        mixture = recipe.data.mixture if is_train else recipe.data.mixture.model_copy(update={"total": None})
        return mix_sources(split, source_entries(sources), mixture, seed=recipe.packing.seed, aside=aside)

    def _write_split(self, split: TokenizedSplit) -> SplitRecord:
        artifact, resolved_recipe = self.folder / staging.ARTIFACT, self.spec.resolved
        multiple, packing = resolved_recipe.pad_seq_to_mult.value, resolved_recipe.recipe.packing
        self.progress.start(f"Packing {split.name}", split.num_sequences, "sequences")
        has_sets = split.name == VALIDATION and resolved_recipe.recipe.data.has_validation_sets
        plan = _plan_of(split, packing, multiple, has_sets=has_sets)
        if resolved_recipe.balance is not None and split.name == TRAIN:
            plan = balance_plan(plan, split.runtime_lengths(multiple), resolved_recipe.balance, has_tail=multiple == 1)
        self.progress.advance(split.num_sequences)
        self.progress.finish()
        for folder in (artifact, self.folder / staging.RECEIPTS):
            make_folders(folder / split.name)
        plans = shard_plans(split, plan, folder=artifact, multiple=multiple, policy=self.spec.policy())
        self.progress.start(f"Writing {split.name}", plan.num_packs, "packs")
        shards = self._write_shards(split, plans)
        self.progress.finish()
        write_provenance(artifact / PLAN_FOLDER / f"{split.name}.parquet", split, plan)
        write_digests(artifact / digests_file(split.name), [shard.digests for shard in shards])
        return SplitRecord(
            name=split.name,
            inputs=split.inputs,
            shards=tuple(shard.record for shard in shards),
            statistics=split_statistics(split, plan, multiple),
            drops=split.drops.counts,
            drop_examples=split.drops.examples,
            dropped_pieces=split.dropped_pieces.counts,
            piece_examples=split.dropped_pieces.examples,
            lost_content=split.losses.counts,
            lost_examples=split.losses.examples,
            sources=with_pack_counts(split, plan) if has_sets else split.sources,
            unread=split.unread,
            skipped_files=self.spec.skipped.get(split.name),
        )

    def _write_shards(self, split: TokenizedSplit, plans: Iterable[ShardPlan]) -> list[WrittenShard]:
        receipts = self.folder / staging.RECEIPTS
        tasks = (
            WriteTask(plan=plan, token_files=split.token_files, receipt=receipts / f"{plan.name}.json")
            for plan in plans
        )
        shards = []
        for outcome in self.runner.run(write_planned_shard, tasks):
            shard = result_of(self._again(outcome) if isinstance(outcome, TaskFailure) else outcome)
            self.progress.advance(shard.record.num_rows)
            self.watch(shard)
            shards.append(shard)
        return shards

    def _again(self, failure: TaskFailure) -> WrittenShard | TaskFailure:
        """Return the result of a shard whose process died, after writing it again alone."""
        outcome: WrittenShard | TaskFailure = failure
        for _ in range(_MAX_TRIES):
            if not isinstance(outcome, TaskFailure) or outcome.trace:
                return outcome
            outcome = self.runner.run_alone(write_planned_shard, failure.task)
        return outcome


def _plan_of(split: TokenizedSplit, packing: PackingConfig, multiple: int, *, has_sets: bool) -> PackPlan:
    """Return the packs of a split; with sets, each pack holds one source."""
    plan_of = partial(
        plan_packs,
        packed_sequence_size=packing.packed_sequence_size,
        algorithm=packing.algorithm,
        max_sequences_per_pack=packing.max_sequences_per_pack,
        seed=packing.seed,
    )
    runtime_lengths = split.runtime_lengths(multiple)
    if has_sets and split.num_sequences:
        return plan_packs_apart(runtime_lengths, split.sources_of_sequences, plan_of)
    return plan_of(runtime_lengths)


#: (settings, range, index in the token file -> detail for the ledger)
_Task = tuple[FinishSettings, RangePlace, Mapping[int, str]]


def without_duplicates(
    results: Mapping[str, Sequence[RangeResult]], settings: Mapping[str, FinishSettings], runner: Runner
) -> dict[str, list[RangeResult]]:
    """Return split -> results of its ranges, keeping only the first of equal rows, or of equal pieces of conversations.

    Which one is first depends only on the inputs: validation before training, then files and rows in order. Takes
    20 bytes of memory per row, and 80 during the comparison.

    Raises:
        DataError: workers keep dying.
    """
    parts = [
        (source, position, split)
        for split in reversed(SPLITS)
        for source, ranges in results.items()
        for position, result in enumerate(ranges)
        if split in result.parts
    ]
    rows = [_hash_part(results[source][position].parts[split]) for source, position, split in parts]
    part_of = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part.offsets) for part in rows])
    offsets, indices = (
        np.concatenate([np.empty(0, dtype=np.int32), *(getattr(part, name) for part in rows)])
        for name in ("offsets", "indices")
    )
    firsts = first_equal(np.concatenate([np.empty((0, 2), dtype=np.uint64), *(part.hashes for part in rows)]))
    details: dict[tuple[str, int], dict[int, str]] = defaultdict(dict)
    for row in np.flatnonzero(firsts != np.arange(len(firsts))).tolist():
        (source, position, _), (first_source, at, split) = parts[part_of[row]], parts[part_of[firsts[row]]]
        label, first = (
            f"{place.label} row {place.first_row + int(offsets[index])}"
            for place, index in ((results[source][position].place, row), (results[first_source][at].place, firsts[row]))
        )
        detail = f"tokens and mask equal those of {first}, in {split}"
        if label == first and results[source][position].place != results[first_source][at].place:
            detail = f"data names its file more than once; {split} already has the row"
        details[source, position][int(indices[row])] = detail
    less = {source: list(ranges) for source, ranges in results.items()}
    tasks = (
        (settings[source], less[source][position].place, row_details)
        for (source, position), row_details in details.items()
    )
    for (source, position), outcome in zip(details, runner.run(_finish_again, tasks), strict=True):
        less[source][position] = result_of(outcome)
    return less


def first_equal(hashes: npt.NDArray[np.uint64]) -> IntArray:
    """Return the index of the first equal row; `hashes` are [num_rows, 2], uint64: [[1 2] [3 4] [1 2]] -> [0 1 0]."""
    wide = pa.Array.from_buffers(pa.binary(16), len(hashes), [None, pa.py_buffer(np.ascontiguousarray(hashes))])
    codes = numpy_array(wide.dictionary_encode().indices)
    firsts: IntArray = np.unique(codes, return_index=True)[1][codes]
    return firsts


class _Hashed(NamedTuple):
    """The sequences of a part before over-long ones are split; arrays have shape [num_sequences]."""

    offsets: npt.NDArray[np.int32]  #: 0-based row within the range
    indices: npt.NDArray[np.int32]  #: index in the token file
    hashes: npt.NDArray[np.uint64]  #: shape [num_sequences, 2]


def _hash_part(part: RangePart) -> _Hashed:
    assert part.hashes is not None
    assert part.sources is not None
    is_first = np.diff(part.sources, prepend=-1) != 0
    indices = part.sources[is_first].astype(np.int32)
    return _Hashed(part.sequences["row_offset"][is_first], indices, part.hashes[is_first])


def _finish_again(task: _Task, _: Beat) -> RangeResult:
    settings, place, duplicates = task
    return finish_range(settings, place, duplicates)
