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
        identity: waits for the tokenizer and returns its identity; raises a TokenizerError when it cannot be loaded.
        engine: after `begin_engine`, waits for what encodes texts and returns which that is.
    """

    engine: Callable[[], EngineReport]

    def __init__(self, workers: WorkerPool | InThisProcess, recipe: SFTRecipe) -> None:
        """Begin to load the tokenizer."""
        self.workers = workers
        self._recipe = recipe
        self.identity: Callable[[], dict[str, Any]] = workers.begin(partial(_load, recipe.model_dump_json()))

    def begin_engine(self, files: Sequence[InputFile]) -> None:
        """Go on with what encodes texts, which is compared with `tokenizers` on rows of all inputs."""
        arguments = (self._recipe.model_dump_json(), self._recipe.tokenizer.engine, sum(one.num_bytes for one in files))
        self.engine = self.workers.begin(partial(_checked_engine, *arguments, tuple(files)))


def stage_load(recipe: SFTRecipe, engine: str, num_input_bytes: int) -> Callable[[], dict[str, Any]]:
    """Return what loads the tokenisation stage with an engine and returns its tokenizer's identity."""
    return partial(_load_whole, recipe.model_dump_json(), engine, num_input_bytes)


def _load(recipe_json: str) -> dict[str, Any]:
    from bridgepack.data.sequences.loading import load_tokenizer_of

    return load_tokenizer_of(recipe_json).identity()


def _checked_engine(recipe_json: str, engine: str, num_input_bytes: int, files: Sequence[InputFile]) -> EngineReport:
    from bridgepack.data.reading.rows import sampled_rows
    from bridgepack.data.sequences.loading import load_stage

    stage = load_stage(recipe_json, engine, num_input_bytes)
    return stage.check_engine(sampled_rows(files, stage.recipe.data.max_row_bytes), num_input_bytes)


def _load_whole(recipe_json: str, engine: str, num_input_bytes: int) -> dict[str, Any]:
    from bridgepack.data.sequences.loading import load_stage

    return load_stage(recipe_json, engine, num_input_bytes).tokenizer.identity()
