"""The tokens of one build, into the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.build_errors import Kept
from bridgepack.data.producing import Tokens, tasks_runner
from bridgepack.data.reading.inputs import InputFile, file_stamp
from bridgepack.data.results import BuildOptions, BuildPlan
from bridgepack.data.space import SpaceWatch
from bridgepack.data.stages.range_tasks import RangeResult
from bridgepack.data.stages.tokenise import SplitInputs, Tokenizing
from bridgepack.data.store.keys import tokenization_identity, tokenization_key
from bridgepack.data.store.store import TokenStore
from bridgepack.data.tasks import Progress, Runner
from bridgepack.data.tokenizers.engines import REFERENCE, EngineDiffersError
from bridgepack.data.workers.stage_loading import StageLoading, stage_load
from bridgepack.errors import DataError

#: Input that is worth another worker.
_BYTES_PER_WORKER = 1 << 21


@dataclass(kw_only=False)
class Building:
    """The tokens of one build."""

    plan: BuildPlan
    folder: Path
    store: TokenStore
    kept: Kept
    progress: Progress
    options: BuildOptions

    @contextmanager
    def tokens(self, loading: StageLoading) -> Iterator[Tokens]:
        """Give what becomes of the inputs' ranges, whose tokens are in the store, and what runs tasks.

        Args:
            loading: of the recipe's stage; it has begun with the engine.
        """
        report = loading.engine()
        self.kept.engine_message = report.message
        load = stage_load(self._recipe, self._task_engine(report.name), self._num_input_bytes)
        shared, identity = [self.folder, self.store.folder], self.plan.spec.tokenizer
        with tasks_runner(
            loading.workers, self.options, self._useful_workers(), shared, self.progress, load=load, identity=identity
        ) as (runner, text_bytes):
            try:
                results = self._tokenized(runner, text_bytes, report.name)
            except EngineDiffersError as error:
                self.kept.engine_message = f"everything was tokenised again with tokenizers: {error}"
                results = self._tokenized(runner, text_bytes, REFERENCE)
            _refuse_changed_inputs(self.plan)
            yield runner, results

    def _tokenized(self, runner: Runner, text_bytes: int, engine: str) -> dict[str, list[RangeResult]]:
        """Return what becomes of the ranges of each split's files."""
        plan, spec, recipe = self.plan, self.plan.spec, self._recipe
        identity = tokenization_identity(recipe, spec.tokenizer, engine)
        key = tokenization_key(identity)
        self.store.write_identity(key, {"tokenizer": spec.tokenizer["name_or_path"], "depends_on": identity})
        tokenizing = Tokenizing(
            store=self.store,
            tokenization=key,
            recipe_json=recipe.model_dump_json(),
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
            hashes = [record.sha256 for record in spec.inputs[source]]
            inputs = SplitInputs(name=source, files=files, hashes=hashes)
            results[source] = tokenizing.results(inputs, spec.finish_settings(source, self.folder))
        return results

    def _watch(self) -> Callable[[RangeResult], None]:
        """Return what is told of each range: it counts, and stops a build that the disks have no room for."""
        space = SpaceWatch(self.plan.output, self.store.folder, self._files)
        space.refuse_full_disks()
        self.kept.num_ranges_tokenized = self.kept.num_ranges_found = 0

        def watch(result: RangeResult) -> None:
            self.kept.add_range(result)
            space.add(result)

        return watch

    def _task_engine(self, engine: str) -> str:
        """Return what tasks ask for: the reference, or what the recipe says, as where it was found to be sound."""
        return REFERENCE if engine == REFERENCE else self._recipe.tokenizer.engine

    @property
    def _recipe(self) -> SFTRecipe:
        return self.plan.spec.resolved.recipe

    @property
    def _files(self) -> list[InputFile]:
        return [file for files in self.plan.files.values() for file in files]

    @property
    def _num_input_bytes(self) -> int:
        return sum(record.num_bytes for records in self.plan.spec.inputs.values() for record in records)

    def _useful_workers(self) -> int:
        """Return how many processes pay for their start; the bytes are the same for any number."""
        return min(max(self.options.num_workers, 1), 1 + self._num_input_bytes // _BYTES_PER_WORKER)


def _refuse_changed_inputs(plan: BuildPlan) -> None:
    for path, stamp in plan.stamps.items():
        if not path.is_file() or file_stamp(path) != stamp:
            raise DataError(f"{path} changed during the build. Build again once nothing writes to it.")
