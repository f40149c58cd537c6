"""What a build asks its worker server to load, named without importing templates and tokenizers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.workers.server_process import WorkerServer

if TYPE_CHECKING:
    from bridgepack.data.reading.inputs import InputFile
    from bridgepack.data.tokenizers.engines import EngineReport


class StageLoading:
    """Loads the tokenisation stage of a recipe, for the workers of one build.

    Attributes:
        server: the process that loads it and that workers are forked from; None to load it in this process.
    """

    def __init__(self, server: WorkerServer | None, recipe: SFTRecipe) -> None:
        """Begin to load."""
        self.server = server
        self._recipe = recipe
        self._engine: Callable[[], EngineReport] | None = None
        self._wait_for_stage: Callable[[], None] = partial(_load, recipe.model_dump_json())
        self._identify: Callable[[], dict[str, Any]] = partial(_identity, recipe.model_dump_json())
        if server is not None:
            server.begin(self._wait_for_stage)
            self._wait_for_stage = server.prepared
            self._identify = server.aside(self._identify)

    def begin_engine(self, files: Sequence[InputFile]) -> None:
        """Go on with what encodes texts, which is compared with `tokenizers` on rows of the files.

        Args:
            files: all inputs.
        """
        num_bytes = sum(file.num_bytes for file in files)
        engine = self._recipe.tokenizer.engine
        self._engine = partial(_checked_engine, self._recipe.model_dump_json(), engine, num_bytes, tuple(files))
        if self.server is not None:
            self.server.begin(self._engine)
            self._engine = self.server.prepared

    def identity(self) -> dict[str, Any]:
        """Return the identity of the loaded tokenizer.

        Raises:
            TokenizerError: when it cannot be loaded or cannot do what the recipe asks.
        """
        self._wait_for_stage()
        return self._identify()

    def engine(self) -> EngineReport:
        """Return what encodes texts, after `begin_engine`."""
        assert self._engine is not None
        return self._engine()


def node_load(recipe: SFTRecipe, engine: str, num_input_bytes: int) -> Callable[[], dict[str, Any]]:
    """Return what loads the tokenisation stage with an engine on a node, and returns its tokenizer's identity."""
    return partial(_on_node, recipe.model_dump_json(), engine, num_input_bytes)


def _load(recipe_json: str) -> None:
    from bridgepack.data.sequences.loading import forget_stage, load_tokenizer_of

    forget_stage()
    load_tokenizer_of(recipe_json)


def _identity(recipe_json: str) -> dict[str, Any]:
    from bridgepack.data.sequences.loading import load_tokenizer_of

    return load_tokenizer_of(recipe_json).identity()


def _checked_engine(recipe_json: str, engine: str, num_input_bytes: int, files: Sequence[InputFile]) -> EngineReport:
    from bridgepack.data.sequences.loading import load_stage
    from bridgepack.data.tokenizers.engine_sample import sampled_rows

    stage = load_stage(recipe_json, engine, num_input_bytes)
    return stage.check_engine(sampled_rows(files, stage.recipe.data.max_row_bytes), num_input_bytes)


def _on_node(recipe_json: str, engine: str, num_input_bytes: int) -> dict[str, Any]:
    from bridgepack.data.sequences.loading import load_stage

    return load_stage(recipe_json, engine, num_input_bytes).tokenizer.identity()
