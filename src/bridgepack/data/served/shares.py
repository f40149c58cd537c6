"""Measures what a setting trains of a sample's answers: how many, how many as they are served, in how many tokens."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import batched
from typing import TYPE_CHECKING, Any

from bridgepack.data.served.rows import ServedRows
from bridgepack.errors import BridgepackError, RowError
from bridgepack.records import Shares
from bridgepack.records.rows import ReadRow
from bridgepack.records.served import VARIABLES

if TYPE_CHECKING:
    from bridgepack.data.sequences.loading import LoadedStage

#: Rows that are encoded together.
_ENCODED_TOGETHER = 16


class AnswerSample:
    """Rows of conversations and the stage that encodes them; each setting is measured once."""

    def __init__(self, stage: "LoadedStage", rows: Sequence[ReadRow]) -> None:
        """Take rows as layouts read them."""
        self._rows = rows
        self._shares: dict[str, Shares | None] = {}
        #: variables of the template -> a stage with them, which has learned the template
        self._stages = {_key(stage.recipe.tokenizer.chat_template_kwargs): stage}
        self._stage = stage

    def shares(self, setting: Mapping[str, Any]) -> Shares | None:
        """Return what the recipe trains with a setting: dotted path -> value, empty for the recipe as it is.

        None where the recipe cannot have the setting, or no row is a sequence with it.
        """
        key = _key(setting)
        if key not in self._shares:
            self._shares[key] = self._measure(setting)
        return self._shares[key]

    def _measure(self, setting: Mapping[str, Any]) -> Shares | None:
        try:
            rows = ServedRows.of(self._stage_with(setting), shows_texts=False)
        except BridgepackError:
            return None
        kinds, num_tokens = Counter[str](), 0
        for group in batched(self._rows, _ENCODED_TOGETHER):
            for answers, num_tokens_of_row in rows.iter_with_tokens(group):
                kinds.update(() if isinstance(answers, RowError) else (str(answer.kind) for answer in answers))
                num_tokens += num_tokens_of_row
        return Shares(setting=setting, kinds=dict(kinds), num_tokens=num_tokens) if kinds else None

    def _stage_with(self, setting: Mapping[str, Any]) -> "LoadedStage":
        """Return a stage with a setting; the tokenizer is not loaded again.

        Raises:
            BridgepackError: the recipe cannot have the setting, or the tokenizer cannot do what it asks.
        """
        if not setting:
            return self._stage
        recipe = self._stage.recipe.override(setting)
        key = _key(recipe.tokenizer.chat_template_kwargs)
        if key not in self._stages:
            self._stages[key] = self._stage.with_recipe(self._stage.recipe.override({VARIABLES: setting[VARIABLES]}))
        return self._stages[key].with_recipe(recipe)


def _key(setting: Mapping[str, Any]) -> str:
    return json.dumps(setting, sort_keys=True, default=str)
