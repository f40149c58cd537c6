"""Functions that load a build's workers before their first task; imports templates and tokenizers only when called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridgepack.data.reading.inputs import InputFile
    from bridgepack.data.tokenizers.engines import EngineReport


def tokenizer_identity(recipe_json: str) -> dict[str, Any]:
    """Return the identity of a recipe's tokenizer, after loading it.

    Raises:
        TokenizerError: it cannot be loaded.
    """
    from bridgepack.data.sequences.loading import load_tokenizer_of

    return load_tokenizer_of(recipe_json).identity()


def checked_engine(recipe_json: str, engine: str, num_input_bytes: int, files: Sequence[InputFile]) -> EngineReport:
    """Return which engine encodes texts, after comparing it with `tokenizers` on rows of all inputs."""
    from bridgepack.data.reading.rows import sampled_rows
    from bridgepack.data.sequences.loading import load_stage

    stage = load_stage(recipe_json, engine, num_input_bytes)
    return stage.check_engine(sampled_rows(files, stage.recipe.data.max_row_bytes), num_input_bytes)


def stage_identity(recipe_json: str, engine: str, num_input_bytes: int) -> dict[str, Any]:
    """Return the tokenizer's identity, after loading the tokenisation stage with an engine."""
    from bridgepack.data.sequences.loading import load_stage

    return load_stage(recipe_json, engine, num_input_bytes).tokenizer.identity()
