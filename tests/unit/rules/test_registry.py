"""Rules are complete, named alike and all registered."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from types import ModuleType

import pytest

import bridgepack.rules
from bridgepack.rules import Rule, find_rule
from bridgepack.rules.groups import group_of, judges
from bridgepack.rules.registry import ALL_RULES
from bridgepack.rules.run_rule import RunRule
from bridgepack.rules.versions import TARGET

MODULES = [
    module
    for info in pkgutil.walk_packages(bridgepack.rules.__path__, "bridgepack.rules.")
    if hasattr(module := importlib.import_module(info.name), "RULES")
]


def test_codes_and_names_are_unique() -> None:
    assert len({rule.code for rule in ALL_RULES}) == len(ALL_RULES)
    assert len({rule.name for rule in ALL_RULES}) == len(ALL_RULES)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_rule_of_a_module_is_in_its_tuple_and_registered(module: ModuleType) -> None:
    defined = [value for value in vars(module).values() if isinstance(value, Rule)]
    assert {rule.code for rule in defined} == {rule.code for rule in module.RULES}
    assert all(rule in ALL_RULES for rule in defined)


def test_no_rule_lies_in_a_module_without_a_tuple() -> None:
    assert len(MODULES) > 30
    assert sum(len(module.RULES) for module in MODULES) >= len(ALL_RULES) - 3  # those on suppressions


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.code)
def test_rule_says_what_why_and_how_to_fix(rule: Rule) -> None:
    assert re.fullmatch(r"BP\d\d\d", rule.code)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
    assert group_of(rule.code)
    assert judges(rule)
    assert set(rule.versions) <= set(TARGET)
    assert isinstance(rule, RunRule) <= bool(rule.noticed and rule.evidence)
    assert re.match(r"(Crash|Silent|Slow)\b", rule.why)
    assert rule.summary.endswith(".")
    assert all((rule.source, rule.bad, rule.good, rule.fix))
    assert "\n" not in rule.why + rule.bad + rule.good + rule.fix


def test_find_rule() -> None:
    found = find_rule("BP303")
    assert found is not None
    assert found.name == "loss-mask-length-differs"
    assert find_rule("BP999") is None


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.code)
def test_rule_function_is_short(rule: Rule) -> None:
    lines, _ = inspect.getsourcelines(rule.check)  # type: ignore[attr-defined]
    first = next(number for number, line in enumerate(lines) if line.startswith("def "))
    assert len(lines) - first <= 40
