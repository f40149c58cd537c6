"""What is easily forgotten when something is added: a statistic's rule, a drop's cure, a family's template, a stem."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import pytest

from bridgepack.config.load import load_recipe
from bridgepack.data.templates.families import FAMILIES as MARKER_FAMILIES
from bridgepack.host import V06
from bridgepack.records import DropReason, SplitStatistics
from bridgepack.rules.artifact.preparation import CURES, FAULTS
from tests.support.catalogue import catalogue, function_of
from tests.unit.rules.in_memory_artifact import artifact, check
from tests.zoo import tokenizers

CASE: dict[str, Any] = {"rows": {"training": [[[11, 12, 13, 2], [0, 1, 1, 0], [0]]]}}
#: Statistics of what is in no pack, so that nothing can contradict them.
OF_WHAT_IS_LEFT_OUT = {
    "num_blank_lines",
    "num_untrained_pieces",
    "num_added_tokens",
    "num_cut_exchanges",
    "num_cut_turns",
}


def test_a_rule_reports_every_wrong_statistic() -> None:
    """Whoever adds a statistic compares it with the packs or with other statistics, in `rules/artifact/manifest.py`."""
    manifest = artifact(CASE).manifest
    assert manifest is not None
    unnoticed = set()
    for field in fields(SplitStatistics):
        value = getattr(manifest.splits[0].statistics, field.name)
        wrong = value + 1000 if isinstance(value, int) else [(value[-1][0], value[-1][1] + 1)]
        place = f"manifest/splits/training/statistics/{field.name}"
        if not check({**CASE, "set": {place: wrong}}).has_errors:
            unnoticed.add(field.name)
    assert unnoticed == OF_WHAT_IS_LEFT_OUT


def test_every_fault_of_rows_has_a_cure() -> None:
    """Whoever adds a drop reason says in `rules/artifact/preparation.py` what to do about it, if it is a fault."""
    assert set(FAULTS) == set(DropReason) - {DropReason.NOT_SAMPLED, DropReason.DUPLICATE}
    assert CURES.keys() == set(FAULTS)


def test_every_family_of_markers_has_a_template_in_the_zoo() -> None:
    """Whoever adds a family of markers adds a tokenizer whose template they are found in, to `tests/zoo`."""
    families = [value for value in vars(tokenizers).values() if isinstance(value, tokenizers.Family)]
    templates = [family.template for family in (*families, *tokenizers.FAMILIES)]
    without = [texts for texts, _ in MARKER_FAMILIES if not any(_has_all(template, texts) for template in templates)]
    assert without == []


def _has_all(template: str, texts: Iterable[str]) -> bool:
    return all(text in template for text in texts)


@pytest.mark.parametrize("target", catalogue(), ids=function_of)
def test_a_recipes_stem_is_that_of_its_base(target: str) -> None:
    """Whoever adds a recipe file gives its models the stems of the host's recipes, if the host has some for them."""
    model = load_recipe(target).model
    assert model is not None
    if "/" in model.name:  # a model of the hub, for which the host has no recipe
        return
    assert model.name in V06.facts.recipes
    stem, base_stem = (
        name.replace("_peft_", "_sft_").partition("_sft_")[0] for name in (function_of(target), model.name)
    )
    assert stem == base_stem
