"""Rules that judge packed artifacts and runs. Start at `engine.rule`: what one is; `registry` collects them."""

from __future__ import annotations

from collections.abc import Sequence

from bridgepack.records import InspectableArtifact
from bridgepack.rules.engine import scan
from bridgepack.rules.engine.context import CheckContext, context_from_manifest
from bridgepack.rules.engine.judge import report_of_scan
from bridgepack.rules.engine.report import CheckReport, RuleCrashError, SkippedRule
from bridgepack.rules.engine.rule import Rule, Severity
from bridgepack.rules.engine.scan import ArtifactScan, Execution
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
    "render_json",
    "render_text",
    "report_to_dict",
    "scan_artifact",
]


def scan_artifact(
    artifact: InspectableArtifact,
    *,
    rules: Sequence[Rule] = ARTIFACT_RULES,
    context: CheckContext | None = None,
    max_examples: int = 5,
    execution: Execution | None = None,
) -> ArtifactScan:
    """Return the facts about an artifact and what structure and row rules find, as `scan.scan_artifact`."""
    return scan.scan_artifact(
        artifact,
        rules=rules,
        structure=STRUCTURE_RULES,
        context=context,
        max_examples=max_examples,
        execution=execution,
    )


def check_artifact(
    artifact: InspectableArtifact,
    *,
    rules: Sequence[Rule] = ARTIFACT_RULES,
    context: CheckContext | None = None,
    max_examples: int = 5,
    execution: Execution | None = None,
) -> CheckReport:
    """Return what the rules say about an artifact.

    Raises:
        RuleCrashError: a rule raised.
    """
    found = scan_artifact(artifact, rules=rules, context=context, max_examples=max_examples, execution=execution)
    return report_of_scan(found, rules=rules, max_examples=max_examples)
