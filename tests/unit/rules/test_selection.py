"""Rules are selected by code, by the beginning of codes, or by name."""

import pytest

from bridgepack.errors import ConfigError
from bridgepack.rules.engine.judge import check_selectors, selected
from bridgepack.rules.registry import ALL_RULES, RUN_RULES


def codes(*, select: tuple[str, ...] = (), ignore: tuple[str, ...] = ()) -> set[str]:
    return {rule.code for rule in selected(RUN_RULES, select=select, ignore=ignore)}


def test_all_by_default() -> None:
    assert codes() == {rule.code for rule in RUN_RULES}


def test_by_code_beginning_and_name() -> None:
    assert codes(select=("BP004",)) == {"BP004"}
    assert codes(select=("micro-batch-size-not-one",)) == {"BP004"}
    assert codes(select=("BP1",)) == {rule.code for rule in RUN_RULES if rule.code.startswith("BP1")}
    assert codes(ignore=("BP004",)) == codes() - {"BP004"}


def test_the_longer_selector_wins() -> None:
    assert codes(select=("BP004",), ignore=("BP0",)) == {"BP004"}
    assert "BP004" not in codes(select=("BP0",), ignore=("BP004",))
    assert codes(select=("BP004",), ignore=("BP004",)) == set()


@pytest.mark.parametrize("selector", ["BP0O4", "XX1", "BP0041", "micro-batch-size"])
def test_a_selector_of_nothing_is_a_clear_error(selector: str) -> None:
    with pytest.raises(ConfigError, match=r"--select is .*, which matches no rule\. Allowed: a code"):
        check_selectors(ALL_RULES, (selector,), "--select")
