"""One build: tokens into the store, then the artifact in the working folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridgepack.data import output as staging
from bridgepack.data.build_errors import Kept
from bridgepack.data.files import make_folders
from bridgepack.data.identity import library_versions
from bridgepack.data.reading.inputs import InputFile, file_stamp
from bridgepack.data.results import BuildOptions, BuildPlan
from bridgepack.data.space import SpaceWatch
from bridgepack.data.stages.range_tasks import RangeResult
from bridgepack.data.stages.tokenise import SplitInputs, Tokenizing
from bridgepack.data.stages.write import ArtifactSpec, ArtifactWriter
from bridgepack.data.store import records as build_records
from bridgepack.data.store.keys import code_digest, tokenization_identity, tokenization_key
from bridgepack.data.store.store import TokenStore
from bridgepack.data.tasks import Progress, Runner
from bridgepack.data.tokenizers.engines import REFERENCE, EngineDiffersError
from bridgepack.data.workers.memory import plan_memory
from bridgepack.data.workers.pool import WorkerPool
from bridgepack.data.workers.ray_cluster import RaySettings, ray_runner
from bridgepack.data.workers.ray_tasks import WorkerSetup
from bridgepack.data.workers.stage_loading import StageLoading, stage_load
from bridgepack.errors import DataError
from bridgepack.records import Manifest

#: Input that is worth another worker.
_BYTES_PER_WORKER = 1 << 21


@dataclass(kw_only=False)
class Building:
    """One build in its working folder."""

    plan: BuildPlan
    folder: Path
    store: TokenStore
    progress: Progress
    options: BuildOptions
    kept: Kept
    _engine: str = field(init=False, default=REFERENCE)

    def run(self, loading: StageLoading) -> Manifest:
        """Build the artifact in the working folder and return its manifest.

        Args:
            loading: of the recipe's stage; it has begun with the engine.
        """
        make_folders(self.folder / staging.WORK)
        report = loading.engine()
        self.kept.engine_message = report.message
        self._engine = report.name
        if self.options.ray is not None:
            return self._run_on_ray(self.options.ray)
        workers = loading.workers
        memory = plan_memory(self.options.memory_bytes, self._useful_workers())
        if isinstance(workers, WorkerPool):
            workers.widen(memory.num_workers, memory.workers_bytes, self._stage_load())
        return self._run(workers, memory.text_bytes)

    def _run_on_ray(self, settings: RaySettings) -> Manifest:
        setup = WorkerSetup(
            folder=str(Path.cwd()),
            memory_bytes=self.options.memory_bytes,
            load=self._stage_load(),
            identity=self.plan.tokenizer,
        )
        shared = [self.folder, self.store.folder]
        with ray_runner(settings, setup=setup, shared=shared, progress=self.progress) as runner:
            memory = plan_memory(self.options.memory_bytes, runner.slots_per_node)
            return self._run(runner, memory.text_bytes)

    def _run(self, runner: Runner, text_bytes: int) -> Manifest:
        try:
            results = self._tokenized(runner, text_bytes, self._engine)
        except EngineDiffersError as error:
            self.kept.engine_message = f"everything was tokenised again with tokenizers: {error}"
            results = self._tokenized(runner, text_bytes, REFERENCE)
        _refuse_changed_inputs(self.plan)
        build_records.write_build_record(self.store, self.plan.output, self.plan.fingerprint, results)
        writer = ArtifactWriter(
            spec=self._spec(), folder=self.folder, runner=runner, progress=self.progress, watch=self.kept.add_shard
        )
        return writer.write(results)

    def _tokenized(self, runner: Runner, text_bytes: int, engine: str) -> dict[str, list[RangeResult]]:
        """Return what becomes of the ranges of each split's files."""
        plan, recipe = self.plan, self.plan.resolved.recipe
        identity = tokenization_identity(recipe, plan.tokenizer, engine)
        key = tokenization_key(identity)
        self.store.write_identity(key, {"tokenizer": plan.tokenizer["name_or_path"], "depends_on": identity})
        tokenizing = Tokenizing(
            store=self.store,
            tokenization=key,
            recipe_json=self._recipe_json,
            engine=self._task_engine(engine),
            num_input_bytes=self._num_input_bytes,
            max_row_bytes=recipe.data.max_row_bytes,
            text_bytes=text_bytes,
            runner=runner,
            progress=self.progress,
            watch=self._watch(),
        )
        results = {}
        for source, files in plan.files.items():
            hashes = [record.sha256 for record in plan.inputs[source]]
            inputs = SplitInputs(name=source, files=files, hashes=hashes)
            results[source] = tokenizing.results(inputs, self._spec().finish_settings(source, self.folder))
        return results

    def _watch(self) -> Callable[[RangeResult], None]:
        """Return what is told of each range: it counts, and stops a build that the disks have no room for."""
        space = SpaceWatch.of(self.plan.output, self.store.folder, self._files)
        space.refuse_full_disks()
        self.kept.num_ranges_tokenized = self.kept.num_ranges_found = 0

        def watch(result: RangeResult) -> None:
            self.kept.add_range(result)
            space.add(result)

        return watch

    def _stage_load(self) -> Callable[[], dict[str, Any]]:
        """Return what a process loads before its first task, which then finds it."""
        return stage_load(self.plan.resolved.recipe, self._task_engine(self._engine), self._num_input_bytes)

    def _task_engine(self, engine: str) -> str:
        """Return what tasks ask for: the reference, or what the recipe says, as where it was found to be sound."""
        return REFERENCE if engine == REFERENCE else self.plan.resolved.recipe.tokenizer.engine

    @property
    def _recipe_json(self) -> str:
        return self.plan.resolved.recipe.model_dump_json()

    @property
    def _files(self) -> list[InputFile]:
        return [file for files in self.plan.files.values() for file in files]

    @property
    def _num_input_bytes(self) -> int:
        return sum(record.num_bytes for records in self.plan.inputs.values() for record in records)

    def _useful_workers(self) -> int:
        """Return how many processes pay for their start; the bytes are the same for any number."""
        return min(max(self.options.num_workers, 1), 1 + self._num_input_bytes // _BYTES_PER_WORKER)

    def _spec(self) -> ArtifactSpec:
        return ArtifactSpec(
            resolved=self.plan.resolved,
            fingerprint=self.plan.fingerprint,
            tokenizer=self.plan.tokenizer,
            versions=library_versions(),
            inputs=self.plan.inputs,
            build=code_digest(),
        )


def _refuse_changed_inputs(plan: BuildPlan) -> None:
    for path, stamp in plan.stamps.items():
        if not path.is_file() or file_stamp(path) != stamp:
            raise DataError(f"{path} changed during the build. Build again once nothing writes to it.")
