"""Facts that take time are found out once, and only where a rule asks."""

import pytest

from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions
from bridgepack.planning import balance
from tests.support.bridge_recipes import DENSE, recipe_of


@pytest.mark.parametrize(("codes", "num_questions"), [(("BP637",), 1), (("BP101", "BP634"), 0), ((), 1)])
def test_balance_is_asked_for_by_its_rule_alone(
    monkeypatch: pytest.MonkeyPatch, codes: tuple[str, ...], num_questions: int
) -> None:
    questions: list[str] = []
    monkeypatch.setattr(balance, "balance_for", lambda recipe: questions.append(recipe.name))
    recipe = recipe_of(DENSE, packing__balance={"kind": "within_batch"})

    check_target(recipe, CheckOptions(select=codes, looks_at_files=False))

    assert len(questions) == num_questions
