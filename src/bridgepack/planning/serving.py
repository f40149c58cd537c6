"""Chooses the setting of a new recipe that trains most answers as they are served, at the least cost."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.records import ServedRecord, Shares, percent
from bridgepack.records.served import VARIABLES, switch_cure


@dataclass(frozen=True, kw_only=True, slots=True)
class Serving:
    """A recipe that trains answers as they are served."""

    recipe: SFTRecipe  #: with the setting that was chosen
    #: what was measured, the recipe as it is first; empty where all answers are as they are served
    choices: tuple[Shares, ...] = ()
    choice: Shares | None = None
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  #: section -> its fields that change
    comments: Mapping[str, str] = field(default_factory=dict)  #: dotted path of the recipe -> comment


def serving_of(recipe: SFTRecipe, record: ServedRecord | None) -> Serving:
    """Return a recipe with the best of the settings that a sample of its answers was measured with.

    Best is the setting with most answers as they are served; of several, the one with the fewest tokens.
    """
    if record is None or not record.choices:
        return Serving(recipe=recipe)
    as_it_is, *alternatives = record.choices
    better = [shares for shares in alternatives if shares.served_fraction > as_it_is.served_fraction]
    choice = max(better, key=lambda shares: shares.merit, default=as_it_is)
    served_recipe = recipe.override(choice.setting)
    sections = dict.fromkeys(path.partition(".")[0] for path in choice.setting)
    price = choice.price(as_it_is)
    return Serving(
        recipe=served_recipe,
        choices=record.choices,
        choice=choice,
        values={name: getattr(served_recipe, name).model_dump(mode="json", exclude_unset=True) for name in sections},
        comments=_comments(choice, f"{price}; without it {percent(as_it_is.served_fraction)}"),
    )


def _comments(choice: Shares, price: str) -> dict[str, str]:
    """Return path -> comment of the setting that was chosen; the price is at the first."""
    if not choice.setting:
        text = f"{percent(choice.served_fraction)} of the trained answers as served; no setting that was tried has more"
        return {"preprocessing.loss_mode": text}
    comments = dict.fromkeys(choice.setting, "trains answers as they are served")
    comments |= {next(iter(choice.setting)): price}
    for name, value in choice.setting.get(VARIABLES, {}).items():
        comments[VARIABLES] = f"{price}; {switch_cure(name, value)}"
    return comments
