"""A Megatron-Bridge that is newer than all that is known: what rules say of it, and what a user reads."""

import re
from pathlib import Path

import pytest
from packaging.version import Version

from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.host import BRIDGE, RELEASES
from bridgepack.reporting.formats import render_report
from bridgepack.rules.judging.context import CannotJudgeError
from bridgepack.rules.judging.environment import Versions, target_versions
from bridgepack.rules.judging.judge import judge_run
from bridgepack.rules.judging.rule import ERROR, Found, rule, wrong
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.registry import RUN_RULES
from tests.support.small_builds import small_recipe
from tests.unit.rules.run_cases import subject_of

RECIPE = small_recipe(Path("train.jsonl"), Path("tokenizer"))
NEWEST = RELEASES[-1]
UNKNOWN = f"not known for 9.9: bridgepack knows Megatron-Bridge up to {NEWEST.name}; update it with"


@rule("BP001", ERROR, "a test")
def habit_of_a_release(run: Run) -> Found:
    """It depends on the release.

    Bad: a. Good: b. Fix: c.
    """
    yield wrong("model", run.release.name, "another release")


@rule("BP002", ERROR, "a test", versions={BRIDGE: ">=0.6"})
def limit_of_versions(run: Run) -> Found:
    """It applies to some versions.

    Bad: a. Good: b. Fix: c.
    """
    yield wrong("model", "there", "not there")


def subject(version: str) -> Run:
    return subject_of({"versions": {BRIDGE: version}})


def test_a_rule_that_needs_a_habit_or_a_limit_of_versions_is_skipped_with_the_reason() -> None:
    report = judge_run(subject("9.9.1"), (habit_of_a_release, limit_of_versions))
    assert report.findings == ()
    assert [(skipped.code, skipped.reason.startswith(UNKNOWN)) for skipped in report.rules_skipped] == [
        ("BP001", True),
        ("BP002", True),
    ]
    known = judge_run(subject(NEWEST.bridge), (habit_of_a_release, limit_of_versions))
    assert [finding.found for finding in known.findings] == [NEWEST.name, "there"]


def test_all_other_rules_judge_as_for_the_newest() -> None:
    newest, newer = (judge_run(subject(version), RUN_RULES) for version in (NEWEST.bridge, "9.9.1"))
    limited = {rule.code for rule in RUN_RULES if BRIDGE in rule.versions}
    unknown = {skipped.code for skipped in newer.rules_skipped if skipped.reason.startswith(UNKNOWN)}
    assert limited <= unknown
    assert len(set(newer.rules_run) - limited) > 100
    assert set(newest.rules_run) - unknown == set(newer.rules_run)
    kept = [finding for finding in newest.findings if finding.code not in unknown]
    assert kept == list(newer.findings)


def test_nothing_is_known_of_what_an_unknown_release_needs() -> None:
    environment = {"versions": {BRIDGE: "9.9.1", "megatron-core": "0.13.1", "transformers": "4.0"}, "python": "3.9"}
    run = subject_of({"versions": {BRIDGE: "0.6.2"}, "environment": environment})
    of_release = ("BP980", "BP981", "BP983", "BP987", "BP988", "BP989")
    report = judge_run(run, tuple(rule for rule in RUN_RULES if rule.code in (*of_release, "BP964")))
    assert [finding.code for finding in report.findings] == ["BP964"]
    assert [(skipped.code, skipped.reason.startswith(UNKNOWN)) for skipped in report.rules_skipped] == [
        (code, True) for code in of_release
    ]


def test_the_release_of_a_version_is_known_or_cannot_be_judged() -> None:
    assert subject("0.7.3").release.name == "0.7"
    assert Versions(versions={BRIDGE: Version("0.7.3")}, origin="").why_unknown is None
    with pytest.raises(CannotJudgeError, match=re.escape(UNKNOWN)):
        _ = subject("9.9.1").release


def test_a_report_says_it_once_and_what_to_do() -> None:
    said = "megatron-bridge 9.9.1 is newer than all that is known, and treated like the newest: bridgepack knows"
    report = check_target(RECIPE, CheckOptions(bridge_version="9.9.1", looks_at_files=False))
    text = render_report(report, shows_skipped=False)
    assert text.startswith(said)
    assert text.count("newer than all") == 1
    assert "pip install -U bridgepack" in text
    assert report.to_dict()["note"].startswith(said)
    assert target_versions("0.6.3rc1").note == check_target(RECIPE, CheckOptions()).note == ""
