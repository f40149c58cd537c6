"""The build task of a launch: builds the run's artifact, or finds it by its fingerprint."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bridgepack.data.build import DEFAULT_FOLDER, build_artifact
from bridgepack.data.results import BuildOptions, BuildResult
from bridgepack.errors import ArtifactInUseError
from bridgepack.planning.balance import balance_for
from bridgepack.reporting.results.builds import build_blocks
from bridgepack.reporting.screen import screen
from bridgepack.running.assignment import (
    SUCCEEDED,
    ArtifactPlace,
    Assignment,
    assignment_of,
    exit_code_of,
    num_cores,
    record,
    say,
)

#: Polling interval in seconds while another build of the same artifact runs.
WAIT_S = 5.0
_REPLACING_ADVICE = (
    "A launch does not replace packs: remove `artifact` from the recipe to get a new folder, build there with "
    "`bridgepack build`, or launch with --skip build to train on these."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, write the artifact's path into the run folder, and return the exit code: 0, or 2 with a message."""
    return exit_code_of(lambda: _build(arguments))


def _build(arguments: Sequence[str] | None) -> int:
    assignment = assignment_of(
        arguments,
        program="python -m bridgepack.running.build",
        description="Build the artifact of a run, or find it by its fingerprint.",
    )
    record(assignment)
    result = build_or_reuse(assignment)
    place = ArtifactPlace(path=str(result.output.absolute()), fingerprint=result.manifest.fingerprint)
    assignment.run_folder.write_artifact(place)
    say(screen(build_blocks(result, assignment.recipe)))
    return SUCCEEDED


def build_or_reuse(assignment: Assignment) -> BuildResult:
    """Return the artifact of a run, built or found; waits if another run is building the same one.

    Raises:
        BridgepackError: the build fails, or the recipe's artifact holds other packs.
    """
    recipe = assignment.recipe
    artifacts = Path(assignment.artifacts or DEFAULT_FOLDER)
    options = BuildOptions(num_workers=num_cores(), replacing_advice=_REPLACING_ADVICE)
    is_waiting, balance = False, balance_for(recipe)
    while True:
        try:
            return build_artifact(recipe, artifacts=artifacts, options=options, balance=balance)
        except ArtifactInUseError as error:
            if not is_waiting:
                say(f"waiting: {error}")
            is_waiting = True
            time.sleep(WAIT_S)


if __name__ == "__main__":
    sys.exit(main())
