"""`check` finds an error exactly where `to_bridge` refuses a recipe, and says it in the same words."""

from collections import Counter

import pytest

from bridgepack.bridge.refusing.refusals import refusal_text, refusals_of
from bridgepack.bridge.writing.write import to_bridge
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from tests.support.bridge_recipes import quiet_host
from tests.support.drawn_recipes import recipes
from tests.support.installed_host import host_version

pytestmark = pytest.mark.bridge

SEED, NUM_RECIPES = 28, 300


def _refused_by_host(recipe: SFTRecipe) -> str | None:
    with quiet_host():
        try:
            to_bridge(recipe)
        except ConfigError as error:
            return str(error)
    return None


def test_recipes_are_refused_in_the_words_of_a_check(h100_host: None) -> None:
    outcomes: Counter[str] = Counter()
    codes: Counter[str] = Counter()
    for values in recipes(SEED, NUM_RECIPES):
        try:
            recipe = SFTRecipe.from_mapping({**values, "bridge_version": host_version()})
        except ConfigError:
            outcomes["no recipe"] += 1
            continue
        refused, found = _refused_by_host(recipe), refusals_of(recipe)
        said = [refusal_text(finding) for finding in found]
        assert refused in said if refused else said == [], (values, refused, said)
        outcomes["refused" if refused else "taken"] += 1
        codes.update(finding.code for finding in found)

    assert min(outcomes["refused"], outcomes["taken"]) > NUM_RECIPES // 4
    assert {"BP043", "BP044", "BP820", "BP850", "BP851", "BP852", "BP853"} <= set(codes)
