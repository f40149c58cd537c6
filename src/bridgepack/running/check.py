"""The check task of a launch: checks recipe, artifact, topology and environment before a GPU is allocated."""

import sys
from collections.abc import Sequence

from bridgepack.bridge.environment import environment_here
from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions
from bridgepack.data.artifact.manifest import MANIFEST_FILE, read_manifest
from bridgepack.reporting.formats import render_report
from bridgepack.running.assignment import (
    FINDINGS,
    SUCCEEDED,
    ArtifactPlace,
    artifact_of,
    assignment_of,
    exit_code_of,
    num_cores,
    record,
    say,
)

RECORD = "check"
#: A warning elsewhere; here, where the run will be, training cannot start without the checkpoint.
_NO_CHECKPOINT = "BP861"


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, record the report in the run folder, and return the exit code: 0, 1 with findings, 2 with a message.

    With an exit code other than 0 the training does not start.
    """
    return exit_code_of(lambda: _check(arguments))


def _check(arguments: Sequence[str] | None) -> int:
    assignment = assignment_of(
        arguments,
        program="python -m bridgepack.running.check",
        description="Check recipe, artifact, topology and environment of a run; exit 1 on an error.",
    )
    record(assignment)
    artifact = artifact_of(assignment) if assignment.recipe.packing.mode == "offline" else None
    options = CheckOptions(
        artifact=artifact,
        world_size=assignment.world_size,
        environment=environment_here() if assignment.judges_environment else None,
        num_workers=num_cores(),
    )
    report = check_target(assignment.recipe, options)
    if artifact is not None and (artifact / MANIFEST_FILE).is_file():
        place = ArtifactPlace(path=str(artifact.absolute()), fingerprint=read_manifest(artifact).fingerprint)
        assignment.run_folder.write_artifact(place)
    file = assignment.run_folder.add_record(RECORD, report.to_dict())
    say(render_report(report))
    say(f"report: {file}")
    is_missing = any(finding.code == _NO_CHECKPOINT for finding in report.findings)
    if is_missing and not report.has_errors:
        say(
            f"the training does not start: {_NO_CHECKPOINT} is a warning where a recipe is written, but here the run "
            "would start, and checkpoint.pretrained is missing. Import the weights, or correct the path."
        )
    return FINDINGS if report.has_errors or is_missing else SUCCEEDED


if __name__ == "__main__":
    sys.exit(main())
