"""Rules are complete, named alike and all registered."""

import re
from pathlib import Path

import pytest

import bridgepack.rules
from bridgepack.releases import TARGET
from bridgepack.rules import Rule
from bridgepack.rules.engine.rule import RunRule
from bridgepack.rules.groups import group_of
from bridgepack.rules.registry import ALL_RULES


def test_codes_and_names_are_unique() -> None:
    assert len({rule.code for rule in ALL_RULES}) == len(ALL_RULES)
    assert len({rule.name for rule in ALL_RULES}) == len(ALL_RULES)


def test_every_decorated_function_is_collected() -> None:
    decorated = re.compile(r"^@\w*rule\($|^@\w*rule\(\"", re.MULTILINE)
    texts = [path.read_text(encoding="utf-8") for path in Path(bridgepack.rules.__path__[0]).rglob("*.py")]
    assert sum(len(decorated.findall(text)) for text in texts) == len(ALL_RULES) > 300


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.code)
def test_rule_says_what_why_and_how_to_fix(rule: Rule) -> None:
    assert re.fullmatch(r"BP\d\d\d", rule.code)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
    assert group_of(rule.code)
    assert rule.judges
    assert set(rule.versions) <= set(TARGET)
    assert callable(rule.check)
    assert isinstance(rule, RunRule) <= bool(rule.noticed and rule.evidence)
    assert re.match(r"(Crash|Silent|Slow)\b", rule.why)
    assert rule.summary.endswith(".")
    assert all((rule.source, rule.bad, rule.good, rule.fix))
    assert "\n" not in rule.why + rule.bad + rule.good + rule.fix
