"""Rules that judge a packed artifact, the engine that runs them, and their output."""

from bridgepack.rules.context import CheckContext, context_from_manifest
from bridgepack.rules.engine import RuleCrashError, check_artifact
from bridgepack.rules.output import render_json, render_text, report_to_dict
from bridgepack.rules.registry import ARTIFACT_RULES, find_rule
from bridgepack.rules.report import CheckReport, SkippedRule
from bridgepack.rules.rule import Rule, Severity

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
]
