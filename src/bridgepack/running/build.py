"""The build task of a launch: builds the artifact of the run, or finds it by its fingerprint."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.manifest import MANIFEST_FILE
from bridgepack.data.build import DEFAULT_FOLDER, build_artifact, planned_build
from bridgepack.data.results import BuildOptions, BuildResult
from bridgepack.errors import ArtifactInUseError, ConfigError
from bridgepack.planning.balance import balance_for
from bridgepack.records import BalanceRecord
from bridgepack.report.terminal import describe_build
from bridgepack.running.assignment import Assignment, assignment_of, record
from bridgepack.running.folder import ArtifactPlace
from bridgepack.running.program import SUCCEEDED, exit_code_of, num_cores, say

#: Seconds between looks whether another build of the same artifact is done.
WAIT_S = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, write where the artifact is into the run folder, and return the exit code: 0, or 2 with a message."""
    return exit_code_of(lambda: _build(arguments))


def _build(arguments: Sequence[str] | None) -> int:
    assignment = assignment_of(
        arguments,
        program="python -m bridgepack.running.build",
        description="Build the artifact of a run, or find it by its fingerprint.",
    )
    record(assignment)
    result = built(assignment)
    place = ArtifactPlace(path=str(result.output.absolute()), fingerprint=result.manifest.fingerprint)
    assignment.run_folder.write_artifact(place)
    say(describe_build(result, assignment.recipe))
    return SUCCEEDED


def built(assignment: Assignment) -> BuildResult:
    """Return the artifact of a run, built or found; waits where another run is building the same.

    Raises:
        BridgepackError: the build cannot be done, or the recipe's artifact holds other packs.
    """
    recipe = assignment.recipe
    output = None if recipe.artifact is None else Path(recipe.artifact)
    artifacts = Path(assignment.artifacts or DEFAULT_FOLDER)
    is_waiting, balance = False, balance_for(recipe)
    if output is not None and (output / MANIFEST_FILE).is_file():
        _refuse_other_packs(recipe, output, balance)
    while True:
        try:
            return build_artifact(
                recipe,
                output=output,
                artifacts=artifacts,
                options=BuildOptions(num_workers=num_cores()),
                balance=balance,
            )
        except ArtifactInUseError as error:
            if not is_waiting:
                say(f"waiting: {error}")
            is_waiting = True
            time.sleep(WAIT_S)


def _refuse_other_packs(recipe: SFTRecipe, output: Path, balance: BalanceRecord | None) -> None:
    """Make sure that no launch replaces packs that were made from something else."""
    with planned_build(recipe, output=output, balance=balance) as plan:
        found = plan.existing
        if found is not None and found.fingerprint != plan.spec.fingerprint:
            raise ConfigError(
                f"artifact is {str(output)!r}, which holds packs with the fingerprint {found.fingerprint[:12]}; this "
                f"recipe and its data give {plan.spec.fingerprint[:12]}. A launch replaces no packs: remove `artifact` "
                "from the recipe for a folder of its own, build there with `bridgepack build`, or launch with "
                "--skip build to train on these."
            )


if __name__ == "__main__":
    sys.exit(main())
