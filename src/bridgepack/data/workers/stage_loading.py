"""What workers of a build load before their first task, named without importing templates and tokenizers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.tasks import InThisProcess
from bridgepack.data.workers.pool import WorkerPool

if TYPE_CHECKING:
    from bridgepack.data.reading.inputs import InputFile
    from bridgepack.data.tokenizers.engines import EngineReport


class StageLoading:
    """Loads the tokenisation stage of a recipe, where the tasks of its build are to run.

    Attributes:
        workers: the processes of one build, or this process.
    """

    def __init__(self, workers: WorkerPool | InThisProcess, recipe: SFTRecipe) -> None:
        """Begin to load the tokenizer."""
        self.workers = workers
        self._recipe = recipe
        self._engine: Callable[[], EngineReport] | None = None
        self._identity = workers.begin(partial(_load, recipe.model_dump_json()))

    def begin_engine(self, files: Sequence[InputFile]) -> None:
        """Go on with what encodes texts, which is compared with `tokenizers` on rows of the files.

        Args:
            files: all inputs.
        """
        num_bytes = sum(file.num_bytes for file in files)
        engine = self._recipe.tokenizer.engine
        self._engine = self.workers.begin(
            partial(_checked_engine, self._recipe.model_dump_json(), engine, num_bytes, tuple(files))
        )

    def identity(self) -> dict[str, Any]:
        """Return the identity of the loaded tokenizer.

        Raises:
            TokenizerError: when it cannot be loaded or cannot do what the recipe asks.
        """
        return self._identity()

    def engine(self) -> EngineReport:
        """Return what encodes texts, after `begin_engine`."""
        assert self._engine is not None
        return self._engine()


def stage_load(recipe: SFTRecipe, engine: str, num_input_bytes: int) -> Callable[[], dict[str, Any]]:
    """Return what loads the tokenisation stage with an engine and returns its tokenizer's identity."""
    return partial(_load_whole, recipe.model_dump_json(), engine, num_input_bytes)


def _load(recipe_json: str) -> dict[str, Any]:
    from bridgepack.data.sequences.loading import load_tokenizer_of

    return load_tokenizer_of(recipe_json).identity()


def _checked_engine(recipe_json: str, engine: str, num_input_bytes: int, files: Sequence[InputFile]) -> EngineReport:
    from bridgepack.data.sequences.loading import load_stage
    from bridgepack.data.tokenizers.engine_sample import sampled_rows

    stage = load_stage(recipe_json, engine, num_input_bytes)
    return stage.check_engine(sampled_rows(files, stage.recipe.data.max_row_bytes), num_input_bytes)


def _load_whole(recipe_json: str, engine: str, num_input_bytes: int) -> dict[str, Any]:
    from bridgepack.data.sequences.loading import load_stage

    return load_stage(recipe_json, engine, num_input_bytes).tokenizer.identity()
