"""Tests for `bridgepack.reporting.results.rules`: rules stand below the group that they belong to."""

from bridgepack.reporting.results.rules import rule_blocks, rules_blocks
from bridgepack.reporting.rules import explain_rule
from bridgepack.reporting.screen import screen
from bridgepack.rules.registry import ALL_RULES, group_of


def test_a_rule_is_listed_below_its_own_group() -> None:
    rules = explain_rule("BP")
    assert isinstance(rules, list)
    *sections, _ = screen(rules_blocks(rules)).split("\n\n")
    heads = [section.split(":\n") for section in sections]

    listed = {row.split()[0]: group for group, rows in heads for row in rows.splitlines()}
    assert listed == {rule.code: group_of(rule.code) for rule in ALL_RULES}


def test_a_rule_is_wrapped_beside_its_labels_and_its_links_are_whole() -> None:
    rule = explain_rule("BP101")
    assert isinstance(rule, dict)
    lines = screen(rule_blocks({**rule, "why": "word " * 30, "links": ["https://a/" + "b" * 90], "url": "https://c"}))

    assert "\nWhy:      word word" in lines
    assert "\n          word word" in lines
    assert lines.endswith(f"\nLinks:    https://a/{'b' * 90}\n          https://c")
    assert max(len(line) for line in lines.splitlines() if "http" not in line) <= 80
