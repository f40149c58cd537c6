"""Chooses the fraction of the rows that a new recipe sets aside, so that at least one step evaluates them."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bridgepack.bridge.wiring import Packs, host_settings
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.planning.preview import Preview, preview_recipe
from bridgepack.records import TRAIN, VALIDATION
from bridgepack.records.words import count_text

FRACTION, STEPS = "data.validation_fraction", "schedule.eval_iters"
#: Largest share of the rows that is set aside, and the factors by which a share is raised until it is enough.
_MOST_ASIDE, _FACTORS = 0.2, (1.05, 1.3, 1.7)


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """What a run evaluates."""

    recipe: SFTRecipe  #: with the fraction that is set aside, or the steps that say that nothing is
    preview: Preview  #: of that recipe
    num_steps: int  #: steps of an evaluation
    why_none: str = ""  #: why there is no evaluation, and what would give one; empty if there is one

    @property
    def values(self) -> dict[str, dict[str, Any]]:
        """Section -> its fields, where the recipe has to say that nothing is evaluated."""
        schedule = self.recipe.schedule
        return {} if schedule.eval_iters is None else {"schedule": schedule.model_dump(exclude_unset=True)}

    @property
    def comments(self) -> dict[str, str]:
        """Dotted path of the recipe -> comment."""
        if self.recipe.data.validation is not None:
            return {STEPS: self.why_none} if self.why_none else {}
        aside = f"fraction of the rows set aside for evaluation: {self.words}"
        return {FRACTION: self.why_none or aside} if self.words else {}

    @property
    def words(self) -> str:
        """The steps in words, or why there are none; empty where no validation data is wanted."""
        return self.why_none or (count_text(self.num_steps, "evaluation step") if self.num_steps else "")


def evaluation_of(recipe: SFTRecipe, preview: Preview) -> Evaluation:
    """Return a recipe with the smallest fraction set aside that fills a step of evaluation, starting with its own.

    Raises:
        ConfigError, TokenizerError, DataError: as for a preview.
    """
    num_steps, is_wanted = _num_steps(recipe, preview), recipe.data.validation or recipe.data.validation_fraction
    if num_steps or not is_wanted or preview.run is None:
        return Evaluation(recipe=recipe, preview=preview, num_steps=num_steps)
    least = _least_packs(recipe)
    if not recipe.data.validation_fraction:
        packs = count_text((preview.num_packs or {}).get(VALIDATION, 0), "validation pack")
        why = f"no evaluation: {packs}, and a step takes {least}; use fewer GPUs or more validation rows"
        return Evaluation(recipe=recipe.override({STEPS: 0}), preview=preview, num_steps=0, why_none=why)
    for fraction in _fractions(recipe, preview, least):
        larger = recipe.override({FRACTION: fraction})
        sample = preview_recipe(larger, num_rows=0)
        can_train = sample.run is not None and sample.run.num_packs >= sample.run.smallest_batch
        if can_train and (num_steps := _num_steps(larger, sample)):
            return Evaluation(recipe=larger, preview=sample, num_steps=num_steps)
    without = recipe.override({FRACTION: 0.0})
    sample = preview_recipe(without, num_rows=0)
    why = (
        f"no evaluation: a step of it takes {count_text(least, 'pack')}, more than {_MOST_ASIDE:.0%} of these rows "
        "fill; rows of their own in data.validation give one"
    )
    return Evaluation(recipe=without, preview=sample, num_steps=0, why_none=why)


def _num_steps(recipe: SFTRecipe, preview: Preview) -> int:
    """Return the steps of an evaluation of the projected packs."""
    num_packs = preview.num_packs or {}
    return int(_settings(recipe, num_packs)["validation.eval_iters"] or 0) if num_packs.get(VALIDATION) else 0


def _least_packs(recipe: SFTRecipe) -> int:
    """Return the validation packs of the smallest step of evaluation."""
    return int(_settings(recipe, {TRAIN: 1, VALIDATION: 1})["validation.eval_global_batch_size"])


def _settings(recipe: SFTRecipe, num_packs: Mapping[str, int]) -> dict[str, Any]:
    packs = Packs(folder="", num_packs=num_packs)
    return {setting.path: setting.value for setting in host_settings(recipe, packs=packs)}


def _fractions(recipe: SFTRecipe, preview: Preview, least: int) -> Iterator[float]:
    """Yield larger fractions than a recipe's, at most a fifth: of the packs that a step takes, all but a little."""
    num_packs, num_sequences = preview.num_packs or {}, preview.num_sequences or {}
    packs, sequences = (max(sum(counts.values()), 1) for counts in (num_packs, num_sequences))
    smallest = max(recipe.data.validation_fraction, (least - 1) / packs, 1 / sequences)
    fractions = {recipe.data.validation_fraction}
    for factor in (*_FACTORS, _MOST_ASIDE / smallest):
        fraction = math.ceil(min(smallest * factor, _MOST_ASIDE) * 100) / 100
        if smallest <= _MOST_ASIDE and fraction not in fractions:
            fractions.add(fraction)
            yield fraction
