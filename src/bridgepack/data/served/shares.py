"""Measures what a setting trains of a sample's answers: how many, how many as they are served, in how many tokens."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import batched
from typing import TYPE_CHECKING, Any

from bridgepack.data.served.rows import ServedRows
from bridgepack.errors import BridgepackError, RowError
from bridgepack.records import Shares
from bridgepack.records.rows import ReadRow

if TYPE_CHECKING:
    from bridgepack.data.sequences.loading import LoadedStage

#: Rows that are encoded together.
_ENCODED_TOGETHER = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerSample:
    """Rows of conversations, as layouts read them, and the stage that encodes them."""

    stage: "LoadedStage"
    rows: Sequence[ReadRow]


def shares_of(sample: AnswerSample, setting: Mapping[str, Any]) -> Shares | None:
    """Return what a recipe trains of a sample with a setting: dotted path -> value, empty for the recipe as it is.

    None where the recipe cannot have the setting, or no row is a sequence with it.
    """
    try:
        rows = ServedRows.of(_stage_with(sample.stage, setting), shows_texts=False)
    except BridgepackError:
        return None
    kinds, num_tokens = Counter[str](), 0
    for group in batched(sample.rows, _ENCODED_TOGETHER):
        for answers, num_tokens_of_row in rows.iter_with_tokens(group):
            kinds.update(() if isinstance(answers, RowError) else (str(answer.kind) for answer in answers))
            num_tokens += num_tokens_of_row
    return Shares(setting=setting, kinds=dict(kinds), num_tokens=num_tokens) if kinds else None


def _stage_with(stage: "LoadedStage", setting: Mapping[str, Any]) -> "LoadedStage":
    """Return a stage with a setting; the tokenizer is not loaded again.

    Raises:
        BridgepackError: the recipe cannot have the setting, or the tokenizer cannot do what it asks.
    """
    if not setting:
        return stage
    return stage.with_recipe(stage.recipe.override(setting))
