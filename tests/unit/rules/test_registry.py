"""Rules are complete, named alike and all registered."""

from __future__ import annotations

import re
from types import ModuleType

import pytest

from bridgepack.rules import (
    ARTIFACT_RULES,
    Rule,
    Severity,
    find_rule,
    manifest,
    masks,
    metadata,
    npy,
    rows,
    shards,
    structure,
)

MODULES = (structure, rows, masks, shards, npy, manifest, metadata)


def test_codes_and_names_are_unique() -> None:
    assert len({rule.code for rule in ARTIFACT_RULES}) == len(ARTIFACT_RULES)
    assert len({rule.name for rule in ARTIFACT_RULES}) == len(ARTIFACT_RULES)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_rule_of_a_module_is_in_its_tuple(module: ModuleType) -> None:
    defined = [value for value in vars(module).values() if isinstance(value, Rule)]
    assert len(defined) > 0
    assert {rule.code for rule in defined} == {rule.code for rule in module.RULES}
    assert all(rule in ARTIFACT_RULES for rule in defined)


@pytest.mark.parametrize("rule", ARTIFACT_RULES, ids=lambda rule: rule.code)
def test_rule_says_what_why_and_how_to_fix(rule: Rule) -> None:
    assert re.fullmatch(r"BP[345]\d\d", rule.code)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
    assert rule.severity in (Severity.ERROR, Severity.WARNING)
    assert re.match(r"(Crash|Silent|Slow)\b", rule.why)
    assert rule.summary.endswith(".")
    assert all((rule.source, rule.bad, rule.good, rule.fix))
    assert "\n" not in rule.why + rule.bad + rule.good + rule.fix


def test_find_rule() -> None:
    found = find_rule("BP303")
    assert found is not None
    assert found.name == "loss-mask-length-differs"
    assert find_rule("BP999") is None
