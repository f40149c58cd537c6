"""Rules that judge packed artifacts and runs. Start at `engine.rule`, which defines a rule; `registry` collects all."""

from typing import Any

from bridgepack.records import InspectableArtifact
from bridgepack.rules.engine import judge
from bridgepack.rules.engine.context import CheckContext, context_from_manifest
from bridgepack.rules.engine.facts import ArtifactFacts
from bridgepack.rules.engine.report import CheckReport, RuleCrashError, SkippedRule
from bridgepack.rules.engine.rule import Rule, Severity
from bridgepack.rules.engine.text import render_json, render_text, report_to_dict
from bridgepack.rules.registry import ARTIFACT_RULES, STRUCTURE_RULES, find_rule

__all__ = [
    "ARTIFACT_RULES",
    "CheckContext",
    "CheckReport",
    "Rule",
    "RuleCrashError",
    "Severity",
    "SkippedRule",
    "check_artifact",
    "context_from_manifest",
    "find_rule",
    "judge_artifact",
    "render_json",
    "render_text",
    "report_to_dict",
]


def judge_artifact(artifact: InspectableArtifact, **options: Any) -> tuple[CheckReport, ArtifactFacts]:
    """Return an artifact's report and facts; `options` as for `engine.judge.judge_artifact` (default: all rules)."""
    return judge.judge_artifact(artifact, **{"rules": ARTIFACT_RULES, **options}, structure=STRUCTURE_RULES)


def check_artifact(artifact: InspectableArtifact, **options: Any) -> CheckReport:
    """Return the report of an artifact; options as for `judge_artifact`."""
    return judge_artifact(artifact, **options)[0]
