"""Packs an artifact's sequences anew from the token store: other sizes, another topology, and no tokenisation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data import output as staging
from bridgepack.data.artifact.manifest import FORMAT_VERSION, read_manifest
from bridgepack.data.build_errors import Kept
from bridgepack.data.built import existing_manifest, refuse_unwritable
from bridgepack.data.identity import library_versions
from bridgepack.data.producing import Tokens, produce, tasks_runner
from bridgepack.data.reading.ranges import InputRange
from bridgepack.data.results import ArtifactPlan, BuildOptions, BuildResult
from bridgepack.data.stages.finish import RangePlace
from bridgepack.data.stages.range_tasks import RangeResult, TokenizeTask, tokenize_range
from bridgepack.data.stages.write import ArtifactSpec
from bridgepack.data.store.keys import code_digest, tokenization_settings
from bridgepack.data.store.records import BuildRecord, RangeRecord, find_build_record
from bridgepack.data.store.store import TokenStore, default_store, existing_store
from bridgepack.data.tasks import InThisProcess, Progress, SilentProgress, result_of
from bridgepack.data.workers.pool import WorkerPool
from bridgepack.data.workers.process import PACKING, preload
from bridgepack.errors import ConfigError, StoreError
from bridgepack.records import InputRecord
from bridgepack.records.fingerprints import fingerprint_of

#: Versions that an artifact has of its own when it is packed anew; the others made the tokens.
_PACKING_LIBRARIES = frozenset({"bridgepack", "pyarrow"})
_NAMED_RANGES = 3
#: Input that is worth another worker.
_BYTES_PER_WORKER = 1 << 26
_ADVICE = "Run `bridgepack build` with the changed recipe instead: it tokenises what is missing."


@dataclass(frozen=True, kw_only=True)
class RepackPlan(ArtifactPlan):
    """What a re-pack would do.

    Attributes:
        source: folder of the artifact whose sequences are packed anew.
        source_fingerprint: of that artifact.
    """

    source: Path
    source_fingerprint: str

    def summary(self) -> dict[str, Any]:
        """Return the plan as plain values, for JSON."""
        return {"source": str(self.source), **super().summary()}


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
    return produce(
        plan, place, lambda folder, store, kept: _Repack(plan, folder, store, kept, shown, options).tokens(), shown
    )


@dataclass(kw_only=False)
class _Repack:
    """The tokens of one re-pack, all of them in the store."""

    plan: RepackPlan
    folder: Path
    store: TokenStore
    kept: Kept
    progress: Progress
    options: BuildOptions

    @contextmanager
    def tokens(self) -> Iterator[Tokens]:
        """Give what becomes of the artifact's ranges, and what runs tasks: as many workers as pay for their start."""
        num_bytes = sum(record.num_bytes for records in self.plan.spec.inputs.values() for record in records)
        wanted = min(max(self.options.num_workers, 1), 1 + num_bytes // _BYTES_PER_WORKER)
        is_alone = wanted == 1 or self.options.ray is not None
        if not is_alone:
            preload(PACKING)
        shared = [self.folder, self.store.folder]
        with (
            nullcontext(InThisProcess()) if is_alone else WorkerPool() as workers,
            tasks_runner(workers, self.options, wanted, shared, self.progress) as (runner, _),
        ):
            record = self._record()
            self.progress.start("Reading the store", sum(map(len, record.ranges.values())), "ranges")
            results = {}
            for source, ranges in record.ranges.items():
                outcomes = runner.run(tokenize_range, self._tasks(source, ranges))
                results[source] = [self._take(result_of(outcome)) for outcome in outcomes]
            self.progress.finish()
            yield runner, results

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
