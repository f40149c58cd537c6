"""All rules on an artifact, without a target."""

from typing import Any

from bridgepack.records import InspectableArtifact
from bridgepack.rules.judging import judge
from bridgepack.rules.judging.facts import ArtifactFacts
from bridgepack.rules.judging.report import CheckReport
from bridgepack.rules.registry import ARTIFACT_RULES, STRUCTURE_RULES


def judge_artifact(artifact: InspectableArtifact, **options: Any) -> tuple[CheckReport, ArtifactFacts]:
    return judge.judge_artifact(artifact, **{"rules": ARTIFACT_RULES, **options}, structure=STRUCTURE_RULES)


def check_artifact(artifact: InspectableArtifact, **options: Any) -> CheckReport:
    return judge_artifact(artifact, **options)[0]
