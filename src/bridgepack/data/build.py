"""Composes the stages of a build: inputs, tokenisation, plan, shards, manifest; counts what enters and leaves."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bridgepack.config.data import as_sources
from bridgepack.config.recipe import ResolvedRecipe, SFTRecipe
from bridgepack.data import splits, staging
from bridgepack.data.artifact import DROPPED_ROWS_FILE, PLAN_FOLDER
from bridgepack.data.bridge_metadata import BRIDGE_METADATA_FILE, bridge_metadata_entry, write_bridge_metadata
from bridgepack.data.execution import Progress, Runner, SilentProgress, runner
from bridgepack.data.fingerprint import fingerprint, input_record, library_versions
from bridgepack.data.inputs import InputFile, file_stamp, find_inputs
from bridgepack.data.manifest import FORMAT_VERSION, MANIFEST_FILE, read_manifest, write_manifest
from bridgepack.data.reading import has_known_size, iter_ranges
from bridgepack.data.stages import RangeResult, TokenizeTask, load_stage, tokenize_range, write_planned_shard
from bridgepack.errors import ArtifactError, DataError
from bridgepack.records import TRAIN, VALIDATION, InputRecord, Manifest, ShardRecord, SplitRecord

DEFAULT_FOLDER = "artifacts"
#: Input that is worth another process: a process takes seconds to start, and tokenises about a megabyte a second.
_BYTES_PER_WORKER = 1 << 24


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildPlan:
    """What a build would do.

    Attributes:
        resolved: the recipe with derived values.
        output: where the artifact goes.
        fingerprint: of the artifact.
        files: split -> input files.
        stamps: input file -> its stamp before it was hashed.
        inputs: split -> their records.
        tokenizer: its identity, for the manifest.
        existing: the manifest of the artifact at `output`, whole or not; None where there is none.
    """

    resolved: ResolvedRecipe
    output: Path
    fingerprint: str
    files: dict[str, list[InputFile]]
    stamps: dict[Path, tuple[int, int]]
    inputs: dict[str, tuple[InputRecord, ...]]
    tokenizer: dict[str, Any]
    existing: Manifest | None

    @property
    def is_built(self) -> bool:
        """The output holds this very artifact, with every file of the right size."""
        return (
            self.existing is not None
            and self.existing.fingerprint == self.fingerprint
            and _is_whole(self.output, self.existing)
        )

    def summary(self) -> dict[str, Any]:
        """Return the plan as plain values, for JSON."""
        return {
            "output": str(self.output),
            "fingerprint": self.fingerprint,
            "is_built": self.is_built,
            "replaces": self.existing.fingerprint if self.existing is not None and not self.is_built else None,
            "inputs": {split: [asdict(record) for record in records] for split, records in self.inputs.items()},
            "resolved": self.resolved.explain(),
            "recipe": self.resolved.recipe.model_dump(mode="json"),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildResult:
    """What a build did.

    Attributes:
        output: folder of the artifact.
        manifest: its manifest.
        was_built_before: the artifact was there already and nothing was done.
        replaced_fingerprint: of the artifact that was there before and is gone; None where there was none.
    """

    output: Path
    manifest: Manifest
    was_built_before: bool
    replaced_fingerprint: str | None = None

    def summary(self) -> dict[str, Any]:
        """Return the result as plain values, for JSON: the manifest, where it is, and what was done."""
        return {
            "output": str(self.output),
            "was_built_before": self.was_built_before,
            "replaced_fingerprint": self.replaced_fingerprint,
            **asdict(self.manifest),
        }


def build_artifact(
    recipe: SFTRecipe,
    *,
    output: Path | None = None,
    artifacts: Path = Path(DEFAULT_FOLDER),
    num_workers: int = 1,
    progress: Progress | None = None,
) -> BuildResult:
    """Build the artifact of a recipe, or find that it is there already.

    Args:
        recipe: what to build.
        output: folder of the artifact; by default `NAME-FINGERPRINT` in `artifacts`. An artifact that is there and has
            another fingerprint is replaced once the new one is complete.
        artifacts: folder that a new artifact goes into where `output` does not say.
        num_workers: processes; the bytes are the same for any number.
        progress: told how far it is.

    Raises:
        ConfigError: the recipe contradicts itself.
        TokenizerError: the tokenizer cannot be loaded or cannot do what the recipe asks.
        DataError: an input is missing or unreadable, nothing is left to pack, or a bad row stops the build.
        ArtifactError: the output cannot be written, or holds something else.
        ArtifactInUseError: another build is writing it.
    """
    shown = progress or SilentProgress()
    with planned_build(recipe, output=output, artifacts=artifacts, progress=shown) as plan:
        if plan.is_built and plan.existing is not None:
            return BuildResult(output=plan.output, manifest=plan.existing, was_built_before=True)
        try:
            with staging.staging(plan.output) as folder:
                manifest = _Build(plan, folder, shown).run(num_workers)
                staging.move_into_place(folder / "artifact", plan.output)
        except OSError as error:
            raise ArtifactError(
                f"{str(plan.output)!r} cannot be written: {error.strerror or error}. Nothing was left behind; free "
                "space or choose another --output."
            ) from error
    replaced = plan.existing.fingerprint if plan.existing is not None else None
    return BuildResult(output=plan.output, manifest=manifest, was_built_before=False, replaced_fingerprint=replaced)


@contextlib.contextmanager
def planned_build(
    recipe: SFTRecipe,
    *,
    output: Path | None = None,
    artifacts: Path = Path(DEFAULT_FOLDER),
    progress: Progress | None = None,
) -> Iterator[BuildPlan]:
    """Give what a build would do; only Hugging Face data sets are written, to a folder that goes afterwards.

    Raises:
        ConfigError, TokenizerError, DataError, ArtifactError: as `build_artifact`.
    """
    shown = progress or SilentProgress()
    resolved = recipe.resolve()
    if output is not None:
        staging.refuse_foreign_folder(output)
    with tempfile.TemporaryDirectory(prefix="bridgepack-") as scratch:
        files = _find_files(recipe, Path(scratch))
        load_stage.cache_clear()
        tokenizer = load_stage(recipe.model_dump_json()).tokenizer
        stamps = {file.path: file_stamp(file.path) for members in files.values() for file in members}
        inputs = _hashed(files, shown)
        identity = tokenizer.identity()
        digest = fingerprint(resolved, identity, inputs)
        folder = output or artifacts / f"{recipe.name}-{digest[:12]}"
        staging.refuse_foreign_folder(folder)
        yield BuildPlan(
            resolved=resolved,
            output=folder,
            fingerprint=digest,
            files=files,
            stamps=stamps,
            inputs=inputs,
            tokenizer=identity,
            existing=_existing(folder),
        )


@dataclass(kw_only=False)
class _Build:
    """One build in its working folder."""

    plan: BuildPlan
    folder: Path
    progress: Progress
    artifact: Path = field(init=False)

    def __post_init__(self) -> None:
        self.artifact = self.folder / "artifact"

    def run(self, num_workers: int) -> Manifest:
        """Build the artifact in the working folder and return its manifest."""
        with runner(self._useful_workers(num_workers)) as workers:
            tokenized = self._tokenized_splits(workers)
            _refuse_changed_inputs(self.plan)
            (self.artifact / PLAN_FOLDER).mkdir(parents=True)
            records = [self._write_split(split, workers) for split in tokenized]
        splits.write_dropped_rows(self.artifact / PLAN_FOLDER / DROPPED_ROWS_FILE, tokenized)
        size = self.plan.resolved.recipe.packing.packed_sequence_size
        entries = [bridge_metadata_entry(record.statistics, packed_sequence_size=size) for record in records]
        write_bridge_metadata(self.artifact / BRIDGE_METADATA_FILE, entries)
        manifest = self._manifest(records)
        write_manifest(self.artifact, manifest)
        return manifest

    def _useful_workers(self, num_workers: int) -> int:
        """Return how many processes pay for their start; the bytes are the same for any number."""
        num_bytes = sum(record.num_bytes for records in self.plan.inputs.values() for record in records)
        return min(num_workers, 1 + num_bytes // _BYTES_PER_WORKER)

    def _tokenized_splits(self, workers: Runner) -> list[splits.TokenizedSplit]:
        """Tokenise every input file once and sort the sequences into splits."""
        found = []
        fraction = self.plan.resolved.recipe.data.validation_fraction
        for name, files in self.plan.files.items():
            inputs = self.plan.inputs[name]
            results = self._tokenize(name, files, workers)
            found.append(splits.gather_split(name, inputs, results, takes_all=fraction == 0))
            if fraction > 0:
                found.append(splits.gather_split(VALIDATION, inputs, results, takes_all=False))
        return found

    def _tokenize(self, name: str, files: Sequence[InputFile], workers: Runner) -> list[RangeResult]:
        store = self.folder / "tokens" / name
        store.mkdir(parents=True)
        total = sum(file.num_bytes for file in files) if all(map(has_known_size, files)) else None
        self.progress.start(f"Tokenising {name}", total, "rows")
        results = []
        for result in workers.run(tokenize_range, self._tokenize_tasks(files, store)):
            self.progress.advance(sum(result.num_rows), work=result.num_bytes)
            results.append(result)
        self.progress.finish()
        return results

    def _tokenize_tasks(self, files: Sequence[InputFile], store: Path) -> Iterator[TokenizeTask]:
        recipe_json = self.plan.resolved.recipe.model_dump_json()
        position = 0
        for index, file in enumerate(files):
            for part in iter_ranges(file, index):
                path = store / f"range-{position:06d}.arrow"
                yield TokenizeTask(recipe_json=recipe_json, file=file, part=part, store_path=path)
                position += 1

    def _write_split(self, split: splits.TokenizedSplit, workers: Runner) -> SplitRecord:
        self.progress.start(f"Packing {split.name}", len(split.rows), "sequences")
        plan = splits.plan_split(split, self.plan.resolved)
        self.progress.advance(len(split.rows))
        self.progress.finish()
        (self.artifact / split.name).mkdir()
        eos_token_id = int(self.plan.tokenizer["eos_token_id"])
        tasks = splits.write_tasks(split, plan, self.plan.resolved, self.artifact, eos_token_id)
        self.progress.start(f"Writing {split.name}", plan.num_packs, "packs")
        shards: list[ShardRecord] = []
        for shard in workers.run(write_planned_shard, tasks):
            self.progress.advance(shard.num_rows)
            shards.append(shard)
        self.progress.finish()
        splits.write_provenance(self.artifact / PLAN_FOLDER / f"{split.name}.parquet", split, plan)
        return SplitRecord(
            name=split.name,
            inputs=split.inputs,
            shards=tuple(shards),
            statistics=splits.split_statistics(split, plan, self.plan.resolved.pad_seq_to_mult.value),
            drops=splits.count_drops(split.drops),
            drop_examples=splits.drop_examples(split.drops),
        )

    def _manifest(self, records: Sequence[SplitRecord]) -> Manifest:
        resolved = self.plan.resolved
        return Manifest(
            format_version=FORMAT_VERSION,
            fingerprint=self.plan.fingerprint,
            packed_sequence_size=resolved.recipe.packing.packed_sequence_size,
            pad_seq_to_mult=resolved.pad_seq_to_mult.value,
            tokenizer=self.plan.tokenizer,
            recipe=resolved.recipe.model_dump(mode="json"),
            resolved=resolved.explain(),
            splits=tuple(records),
            versions=library_versions(),
        )


def _find_files(recipe: SFTRecipe, scratch: Path) -> dict[str, list[InputFile]]:
    files = {TRAIN: find_inputs(as_sources(recipe.data.train), "data.train", TRAIN, scratch)}
    if recipe.data.validation is not None:
        sources = as_sources(recipe.data.validation)
        files[VALIDATION] = find_inputs(sources, "data.validation", VALIDATION, scratch)
    return files


def _hashed(files: dict[str, list[InputFile]], progress: Progress) -> dict[str, tuple[InputRecord, ...]]:
    progress.start("Hashing inputs", sum(file.num_bytes for members in files.values() for file in members), "files")
    records: dict[str, tuple[InputRecord, ...]] = {}
    for split, members in files.items():
        records[split] = ()
        for file in members:
            records[split] += (input_record(file),)
            progress.advance(1, work=file.num_bytes)
    progress.finish()
    return records


def _existing(output: Path) -> Manifest | None:
    """Return the manifest at the output; one that cannot be read counts as none and is replaced."""
    if not (output / MANIFEST_FILE).exists():
        return None
    try:
        return read_manifest(output)
    except ArtifactError:
        return None


def _is_whole(folder: Path, manifest: Manifest) -> bool:
    shards = [(folder / shard.path, shard.num_bytes) for split in manifest.splits for shard in split.shards]
    plans = [folder / PLAN_FOLDER / f"{split.name}.parquet" for split in manifest.splits]
    others = [folder / BRIDGE_METADATA_FILE, folder / PLAN_FOLDER / DROPPED_ROWS_FILE, *plans]
    return all(path.is_file() and path.stat().st_size == size for path, size in shards) and all(
        path.is_file() for path in others
    )


def _refuse_changed_inputs(plan: BuildPlan) -> None:
    for path, stamp in plan.stamps.items():
        if not path.is_file() or file_stamp(path) != stamp:
            raise DataError(f"{path} changed during the build. Build again once nothing writes to it.")
