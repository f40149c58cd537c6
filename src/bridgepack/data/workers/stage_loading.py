"""What workers of a build load before their first task, named without importing templates and tokenizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridgepack.data.reading.inputs import InputFile
    from bridgepack.data.tokenizers.engines import EngineReport


def tokenizer_identity(recipe_json: str) -> dict[str, Any]:
    """Load the tokenizer of a recipe and return its identity.

    Raises:
        TokenizerError: when it cannot be loaded.
    """
    from bridgepack.data.sequences.loading import load_tokenizer_of

    return load_tokenizer_of(recipe_json).identity()


def checked_engine(recipe_json: str, engine: str, num_input_bytes: int, files: Sequence[InputFile]) -> EngineReport:
    """Load what encodes texts, compare it with `tokenizers` on rows of all inputs, and return which it is."""
    from bridgepack.data.reading.rows import sampled_rows
    from bridgepack.data.sequences.loading import load_stage

    stage = load_stage(recipe_json, engine, num_input_bytes)
    return stage.check_engine(sampled_rows(files, stage.recipe.data.max_row_bytes), num_input_bytes)


def stage_identity(recipe_json: str, engine: str, num_input_bytes: int) -> dict[str, Any]:
    """Load the tokenisation stage with an engine and return its tokenizer's identity."""
    from bridgepack.data.sequences.loading import load_stage

    return load_stage(recipe_json, engine, num_input_bytes).tokenizer.identity()
