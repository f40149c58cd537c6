"""Tries the setting `mask_generation_prompt`, which cures differing boundaries, on rows of the sample."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from bridgepack.data.served.compare import ServedAnswer
from bridgepack.data.tokenizers.limits import TimeLimit
from bridgepack.errors import BridgepackError, RowError
from bridgepack.records import ServedKind
from bridgepack.records.rows import ReadRow

if TYPE_CHECKING:
    from bridgepack.data.sequences.loading import LoadedStage

#: Rows to try, and their characters in all: some tenths of a second.
_MOST_ROWS, _BUDGET = 64, 1_000_000


class Tried(NamedTuple):
    """What the setting would do to rows that the recipe packs."""

    num_rows: int = 0  #: 0 if it was not tried
    num_dropped: int = 0


class PromptRows:
    """The first rows of a sample, and whether an answer of the sample differs at the boundary."""

    def __init__(self) -> None:
        self._rows: list[ReadRow] = []
        self._has_boundary = False

    def add(self, row: ReadRow, answers: Sequence[ServedAnswer]) -> None:
        """Keep a row, as layouts read it, if there is room."""
        self._has_boundary |= any(answer.kind == ServedKind.BOUNDARY for answer in answers)
        if len(self._rows) < _MOST_ROWS:
            self._rows.append(row)

    def try_setting(self, stage: "LoadedStage") -> Tried:
        """Return how many of the rows the setting would drop; it is not tried where it cures nothing."""
        masking_stage = _masking_stage(stage) if self._has_boundary else None
        if masking_stage is None:
            return Tried()
        num_rows = num_dropped = num_characters = 0
        with TimeLimit() as limit:
            for row in self._rows:
                num_rows += 1
                try:
                    prepared_row = limit(masking_stage.encoder.prepare, row)
                except RowError:
                    num_dropped += 1
                    continue
                num_dropped += bool(masking_stage.encoder.encode(prepared_row.values).errors)
                num_characters += prepared_row.num_characters
                if num_characters >= _BUDGET:
                    break
        return Tried(num_rows, num_dropped)


def _masking_stage(stage: "LoadedStage") -> "LoadedStage | None":
    """Return a stage with the setting; None if it is set already, or cannot be."""
    settings = stage.recipe.chat_preprocessing
    if settings is None or settings.mask_generation_prompt or stage.recipe.preprocessing.kind != settings.kind:
        return None
    try:
        return stage.with_recipe(stage.recipe.override({"preprocessing.mask_generation_prompt": True}))
    except BridgepackError:
        return None
