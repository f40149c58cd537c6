"""Measures the settings by which answers can be trained as they are served, on rows of a build's sample."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bridgepack.config.recipe.preprocessing import ChatPreprocessing, Preprocessing
from bridgepack.data.served.shares import AnswerSample
from bridgepack.data.served.switches import Switch, Switches
from bridgepack.records import Shares
from bridgepack.records.rows import ReadRow
from bridgepack.records.served import VARIABLES

if TYPE_CHECKING:
    from bridgepack.data.sequences.loading import LoadedStage

#: Rows that settings are measured on, and their answers in all: some tenths of a second for each setting.
_MOST_ROWS, _MOST_ANSWERS = 64, 128
_MODE, _SPLIT, _OVER_LONG = (f"preprocessing.{name}" for name in ("loss_mode", "split_conversations", "over_long"))
#: Settings that move where training begins, and what is never trained; tried on top of each other setting.
_MASK_PROMPT: Mapping[str, Any] = {"preprocessing.mask_generation_prompt": True}
_TRAIN_CONTROL: Mapping[str, Any] = {"preprocessing.masks_control_tokens": False}


class ChoiceRows:
    """The first rows of a sample with trained answers."""

    def __init__(self) -> None:
        self._rows: list[ReadRow] = []
        self._num_answers = 0

    def add(self, row: ReadRow, num_answers: int) -> None:
        """Keep a row, as layouts read it, if there is room."""
        if len(self._rows) < _MOST_ROWS and self._num_answers < _MOST_ANSWERS:
            self._rows.append(row)
            self._num_answers += num_answers

    def measure(self, stage: "LoadedStage", switches: Switches) -> tuple[Shares, ...]:
        """Return what the recipe trains as it is, then with each setting; empty if all answers are as served."""
        sample = AnswerSample(stage, self._rows)
        as_it_is = sample.shares({})
        if as_it_is is None or as_it_is.num_as_served == as_it_is.num_trained:
            return ()
        of_template = [
            _switch_setting(stage.recipe.tokenizer.chat_template_kwargs, switch)
            for switch in dict.fromkeys((switches.texts, switches.prompt))
            if switch.name
        ]
        refinements = [_MASK_PROMPT, _TRAIN_CONTROL, *({**switch, **_MASK_PROMPT} for switch in of_template)]
        settings = ({}, *of_template, *_settings(stage.recipe.preprocessing))
        variants = (_best_variant(sample, setting, refinements) for setting in settings)
        choices = [shares for shares in variants if shares is not None and shares.setting]
        return (as_it_is, *{tuple(sorted(shares.setting)): shares for shares in choices}.values())


def _settings(settings: Preprocessing) -> Iterator[Mapping[str, Any]]:
    """Yield the settings of conversations to try: splitting, and training the last answer alone."""
    if not isinstance(settings, ChatPreprocessing) or settings.split_conversations != "never":
        return
    if settings.loss_mode != "last_turn":
        mode = {_MODE: "assistant"} if settings.loss_mode == "full" else {}
        over_long = {_OVER_LONG: "truncate_history"} if settings.over_long == "split_exchanges" else {}
        yield {**mode, **over_long, _SPLIT: "when_context_differs"}
        if not over_long:
            yield {_MODE: "last_turn"}


def _switch_setting(variables: Mapping[str, Any], switch: Switch) -> Mapping[str, Any]:
    return {VARIABLES: {**variables, switch.name: switch.value}}


def _best_variant(
    sample: AnswerSample, setting: Mapping[str, Any], refinements: Sequence[Mapping[str, Any]]
) -> Shares | None:
    """Return what a setting trains, with the first refinements that make more answers as they are served."""
    best = sample.shares(setting)
    for refinement in refinements:
        if best is None or best.num_as_served == best.num_trained:
            break
        variant = sample.shares({**best.setting, **refinement})
        if variant is not None and variant.is_better_than(best):
            best = variant
    return best
