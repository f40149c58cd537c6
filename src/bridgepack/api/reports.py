"""API function that writes an artifact as a page."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridgepack.api.progress import shows_progress
from bridgepack.api.targets import Recipe, recipe_of
from bridgepack.bridge.targets import Target, recipe_target
from bridgepack.checking.options import CheckOptions
from bridgepack.config.arguments import check_arguments, local_path
from bridgepack.config.load import load_recipe
from bridgepack.data.reading.remote import artifact_place
from bridgepack.data.tasks import Progress
from bridgepack.reporting.html.files import WrittenReport, write_report


@shows_progress
@check_arguments
def report(
    artifact: str | Path,
    *,
    output: str | Path | None = None,
    card: str | Path | None = None,
    sign_off: str | Path | None = None,
    given: Mapping[str, Any] | None = None,
    recipe: Recipe | Target | None = None,
    bridge_version: str | None = None,
    num_workers: int = 1,
    progress: Progress | None = None,
) -> WrittenReport:
    """Write an artifact as one HTML page; return its path and the report of the rules.

    Example: `bridgepack.report("packed").files["output"]`.

    Args:
        artifact: folder or object-store URL of the artifact; or packed files of another tool.
        output: file of the page (default: `report.html` in the artifact; required for a URL).
        card: file of a dataset card (default: none is written).
        sign_off: file of the page that signs a run off: data, masks, findings, topology, steps, memory and what was not
            checked (default: none is written).
        given: facts about packs without a manifest, e.g. `{"packed_sequence_size": 4096}`.
        recipe: the recipe of the run that reads the packs, to judge both (default: only the packs are judged).
        bridge_version: version of Megatron-Bridge to judge for; with `recipe`, the page says what an upgrade changes.
        num_workers: maximum worker processes.
        progress: receives progress updates; by default, a notebook shows bars.

    Raises:
        BridgepackError: ConfigError or ArtifactError, each saying what to do; RuleCrashError if a rule raised.
    """
    place = artifact_place(artifact)
    run = None if recipe is None else _run_of(recipe)
    options = CheckOptions(
        artifact=None if run is None else place,
        overrides={} if run is None else run.overrides,
        given=given or {},
        bridge_version=bridge_version,
        num_workers=max(num_workers, 1),
        progress=progress,
    )
    return write_report(
        place,
        options,
        output=None if output is None else local_path(output, "output"),
        card=None if card is None else local_path(card, "card"),
        signed=None if sign_off is None else local_path(sign_off, "sign_off"),
        target=None if run is None else run.reading(place),
    )


def _run_of(recipe: Recipe | Target) -> Target:
    """Return the target of a recipe; raises ConfigError for one of another kind: it states no steps and sizes."""
    if not isinstance(recipe, Target):
        recipe = recipe_target(load_recipe(recipe) if isinstance(recipe, Mapping) else recipe)
    recipe_of(recipe)
    return recipe
