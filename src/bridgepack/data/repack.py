"""Packs an artifact's sequences anew from the token store: other sizes, another topology, and no tokenisation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data import output as staging
from bridgepack.data.artifact.manifest import FORMAT_VERSION, read_manifest
from bridgepack.data.build_errors import Kept, kept_on_errors
from bridgepack.data.built import existing_manifest, is_built, refuse_unwritable
from bridgepack.data.files import make_folders
from bridgepack.data.identity import library_versions
from bridgepack.data.reading.ranges import InputRange
from bridgepack.data.results import BuildOptions, BuildResult
from bridgepack.data.stages.finish import RangePlace
from bridgepack.data.stages.range_tasks import RangeResult, TokenizeTask, tokenize_range
from bridgepack.data.stages.write import ArtifactSpec, ArtifactWriter
from bridgepack.data.store.keys import code_digest, tokenization_settings
from bridgepack.data.store.records import BuildRecord, RangeRecord, find_build_record, write_build_record
from bridgepack.data.store.store import TokenStore, default_store, existing_store, opened_store
from bridgepack.data.tasks import InThisProcess, Progress, Runner, SilentProgress, result_of
from bridgepack.data.worker_process import PACKING, preload
from bridgepack.data.workers.memory import plan_memory
from bridgepack.data.workers.pool import WorkerPool
from bridgepack.data.workers.ray_cluster import ray_runner
from bridgepack.data.workers.ray_tasks import WorkerSetup
from bridgepack.errors import ConfigError, StoreError
from bridgepack.records import InputRecord, Manifest
from bridgepack.records.fingerprints import fingerprint_of

#: Versions that an artifact has of its own when it is packed anew; the others made the tokens.
_PACKING_LIBRARIES = frozenset({"bridgepack", "pyarrow"})
_NAMED_RANGES = 3
#: Input that is worth another worker.
_BYTES_PER_WORKER = 1 << 26
_ADVICE = "Run `bridgepack build` with the changed recipe instead: it tokenises what is missing."


@dataclass(frozen=True, kw_only=True, slots=True)
class RepackPlan:
    """What a re-pack would do.

    Attributes:
        source: folder of the artifact whose sequences are packed anew.
        output: where the new artifact goes.
        spec: what it is to be.
        existing: the manifest of the artifact at `output`; None where there is none.
        source_fingerprint: of the artifact whose sequences are packed anew.
    """

    source: Path
    output: Path
    spec: ArtifactSpec
    existing: Manifest | None
    source_fingerprint: str

    @property
    def is_built(self) -> bool:
        """The output holds this very artifact, with every file of the right size."""
        return is_built(self.output, self.existing, self.spec.fingerprint)

    def summary(self) -> dict[str, Any]:
        """Return the plan as plain values, for JSON."""
        inputs = {split: [asdict(record) for record in records] for split, records in self.spec.inputs.items()}
        return {
            "source": str(self.source),
            "output": str(self.output),
            "fingerprint": self.spec.fingerprint,
            "is_built": self.is_built,
            "replaces": self.existing.fingerprint if self.existing is not None and not self.is_built else None,
            "inputs": inputs,
            "resolved": self.spec.resolved.explain(),
            "recipe": self.spec.resolved.recipe.model_dump(mode="json"),
        }


def plan_repack(artifact: Path, changes: Mapping[str, Any], *, output: Path | None = None) -> RepackPlan:
    """Return what a re-pack would do.

    Args:
        artifact: folder whose sequences are packed anew.
        changes: dotted path of a recipe field -> new value.
        output: folder of the new artifact; by default `NAME-FINGERPRINT` beside the old one.

    Raises:
        ArtifactError: the folder is no artifact, or the output holds something else.
        ConfigError: a change is impossible, or makes other tokens.
    """
    manifest = read_manifest(artifact)
    before = SFTRecipe.from_mapping(dict(manifest.recipe))
    recipe = before.override(changes)
    _refuse_other_tokens(before, recipe)
    resolved = recipe.resolve()
    splits = manifest.splits[:1] if before.data.validation_fraction > 0 else manifest.splits
    inputs: dict[str, tuple[InputRecord, ...]] = {split.name: split.inputs for split in splits}
    current = library_versions()
    versions = {name: current[name] if name in _PACKING_LIBRARIES else text for name, text in manifest.versions.items()}
    fingerprint = fingerprint_of(
        format_version=FORMAT_VERSION,
        versions=versions,
        inputs=inputs,
        tokenizer=manifest.tokenizer,
        recipe=recipe.model_dump(mode="json"),
        resolved=resolved.explain(),
    )
    folder = output or artifact.resolve().parent / f"{recipe.name}-{fingerprint[:12]}"
    staging.refuse_foreign_folder(folder)
    return RepackPlan(
        source=artifact,
        output=folder,
        spec=ArtifactSpec(
            resolved=resolved,
            fingerprint=fingerprint,
            tokenizer=manifest.tokenizer,
            versions=versions,
            inputs=inputs,
            build=code_digest(),
        ),
        existing=existing_manifest(folder),
        source_fingerprint=manifest.fingerprint,
    )


def repack_artifact(
    artifact: Path,
    changes: Mapping[str, Any],
    *,
    output: Path | None = None,
    progress: Progress | None = None,
    options: BuildOptions | None = None,
) -> BuildResult:
    """Pack an artifact's sequences anew, with other settings; the tokens come from the store, the inputs are not read.

    The bytes are those of a build of the changed recipe. An artifact that is at the output is replaced once the new
    one is complete.

    Args:
        artifact: folder whose sequences are packed anew; it stays as it is, unless it is the output.
        changes: dotted path of a recipe field -> new value; none that makes other tokens.
        output: folder of the new artifact; by default `NAME-FINGERPRINT` beside the old one.
        progress: told how far it is.
        options: how it works; the store is by default that of the old artifact.

    Raises:
        ArtifactError, ConfigError: as `plan_repack`; or the output cannot be written.
        StoreError: the store lacks tokens of the artifact.
        DataError: nothing is left to pack, or a row that is too long stops the build.
        BuildInterrupted: by Ctrl-C, saying what is kept.
    """
    shown, options = progress or SilentProgress(), options or BuildOptions()
    plan = plan_repack(artifact, changes, output=output)
    if plan.is_built and plan.existing is not None:
        return BuildResult(output=plan.output, manifest=plan.existing, was_built_before=True)
    place = existing_store(options.store or default_store(artifact)).folder
    refuse_unwritable(plan.output, place)
    kept = Kept(output=str(plan.output), store=str(place))
    with (
        kept_on_errors(kept),
        staging.staging(plan.output, f"{plan.spec.fingerprint}-{code_digest()}") as folder,
        opened_store(place) as store,
        _runner(plan, options, [folder, store.folder], shown) as runner,
    ):
        manifest = _Repack(plan, store, folder, runner, shown, kept).run()
        staging.move_into_place(folder / staging.ARTIFACT, plan.output)
    replaced = plan.existing.fingerprint if plan.existing is not None else None
    return BuildResult(
        output=plan.output, manifest=manifest, was_built_before=False, replaced_fingerprint=replaced, kept=kept
    )


@contextmanager
def _runner(plan: RepackPlan, options: BuildOptions, shared: Sequence[Path], progress: Progress) -> Iterator[Runner]:
    """Give a runner of as many workers as pay for their start, or Ray."""
    if options.ray is not None:
        setup = WorkerSetup(folder=str(Path.cwd()), memory_bytes=options.memory_bytes)
        with ray_runner(options.ray, setup=setup, shared=shared, progress=progress) as runner:
            yield runner
        return
    num_bytes = sum(record.num_bytes for records in plan.spec.inputs.values() for record in records)
    wanted = min(options.num_workers, 1 + num_bytes // _BYTES_PER_WORKER)
    if wanted <= 1:
        yield InThisProcess()
        return
    memory = plan_memory(options.memory_bytes, wanted)
    preload(PACKING)
    with WorkerPool(memory.num_workers, memory_bytes=memory.workers_bytes) as pool:
        yield pool


@dataclass(kw_only=False)
class _Repack:
    """One re-pack in its working folder."""

    plan: RepackPlan
    store: TokenStore
    folder: Path
    runner: Runner
    progress: Progress
    kept: Kept

    def run(self) -> Manifest:
        """Write the artifact in the working folder and return its manifest."""
        record = self._record()
        make_folders(self.folder / staging.WORK)
        spec = self.plan.spec
        total = sum(len(ranges) for ranges in record.ranges.values())
        self.progress.start("Reading the store", total, "ranges")
        results = {}
        for source, ranges in record.ranges.items():
            tasks = self._tasks(source, ranges)
            results[source] = [self._take(result_of(outcome)) for outcome in self.runner.run(tokenize_range, tasks)]
        self.progress.finish()
        write_build_record(self.store, self.plan.output, spec.fingerprint, results)
        writer = ArtifactWriter(
            spec=spec, folder=self.folder, runner=self.runner, progress=self.progress, watch=self.kept.add_shard
        )
        return writer.write(results)

    def _record(self) -> BuildRecord:
        """Return what the artifact was made of; all of it is in the store.

        Raises:
            StoreError: when it is not.
        """
        record = find_build_record(self.store, self.plan.source_fingerprint)
        where = f"the token store {str(self.store.folder)!r}"
        if record is None:
            raise StoreError(
                f"{where} knows nothing of the artifact {str(self.plan.source)!r}: it was built with another --store, "
                f"or the store was emptied. {_ADVICE}"
            )
        missing = [
            (source, item)
            for source, ranges in record.ranges.items()
            for item in ranges
            if not self.store.path_of(item.token_file).is_file()
        ]
        if missing:
            total = sum(len(ranges) for ranges in record.ranges.values())
            named = ", ".join(self._name(source, item) for source, item in missing[:_NAMED_RANGES])
            more = ", ..." if len(missing) > _NAMED_RANGES else ""
            raise StoreError(
                f"{where} lacks the tokens of {len(missing):,} of the {total:,} input ranges of "
                f"{str(self.plan.source)!r}: {named}{more}. {_ADVICE}"
            )
        return record

    def _name(self, source: str, item: RangeRecord) -> str:
        return f"{self.plan.spec.inputs[source][item.file_index].path} from row {item.first_row}"

    def _tasks(self, source: str, ranges: Sequence[RangeRecord]) -> Iterator[TokenizeTask]:
        settings = self.plan.spec.finish_settings(source, self.folder)
        for position, item in enumerate(ranges):
            label = self.plan.spec.inputs[source][item.file_index].path
            yield TokenizeTask(
                recipe_json="",
                file=None,
                part=InputRange(file_index=item.file_index, first_row=item.first_row, num_rows=0, sha256=""),
                token_file=self.store.path_of(item.token_file),
                place=RangePlace(position=position, file_index=item.file_index, label=label, first_row=item.first_row),
                settings=settings,
            )

    def _take(self, result: RangeResult) -> RangeResult:
        self.progress.advance(1)
        self.kept.add_range(result)
        return result


def _refuse_other_tokens(before: SFTRecipe, after: SFTRecipe) -> None:
    """Make sure that two recipes make the same tokens.

    Raises:
        ConfigError: naming the fields that differ.
    """
    old, new = tokenization_settings(before), tokenization_settings(after)
    changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    if changed:
        raise ConfigError(
            f"{', '.join(changed)} would be changed, which makes other tokens; repack changes how sequences are packed "
            "and nothing before that. Use `bridgepack build` with the changed recipe."
        )
