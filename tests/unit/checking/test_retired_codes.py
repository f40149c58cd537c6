"""A recipe that still ignores a rule of a release that is no longer supported."""

from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.reporting.formats import render_report
from bridgepack.rules.registry import RETIRED
from tests.support.small_builds import small_recipe


def test_check_says_that_the_rule_is_retired() -> None:
    recipe = small_recipe("train.jsonl", "tokenizer", ignore=dict.fromkeys(sorted(RETIRED), "an older host"))
    report = check_target(recipe, CheckOptions(looks_at_files=False))
    found = {item.where: item for item in report.findings if item.code == "BP991"}
    assert found.keys() == {f"ignore.{code}" for code in RETIRED}
    assert {item.allowed for item in found.values()} == {"no entry"}
    assert "of a retired rule" in render_report(report)
