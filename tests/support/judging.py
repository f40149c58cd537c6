"""All rules on an artifact, without a target."""

from dataclasses import asdict
from typing import Any

from bridgepack.records import InspectableArtifact
from bridgepack.rules.judging import judge
from bridgepack.rules.judging.facts import ArtifactFacts
from bridgepack.rules.judging.judgement import Judgement
from bridgepack.rules.judging.report import CheckReport, in_order
from bridgepack.rules.registry import ARTIFACT_RULES, STRUCTURE_RULES


def judge_artifact(artifact: InspectableArtifact, **options: Any) -> tuple[Judgement, ArtifactFacts]:
    return judge.judge_artifact(artifact, **{"rules": ARTIFACT_RULES, **options}, structure=STRUCTURE_RULES)


def check_artifact(artifact: InspectableArtifact, **options: Any) -> CheckReport:
    return report_of(*judge_artifact(artifact, **options))


def report_of(judgement: Judgement, facts: ArtifactFacts) -> CheckReport:
    """Return the report of what rules said of an artifact, as `check` makes it."""
    return CheckReport(
        findings=in_order(judgement.findings),
        rules_run=judgement.rules_run,
        rules_skipped=judgement.rules_skipped,
        **asdict(facts.counts),
    )
