"""API function that writes an artifact as a page."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridgepack import __version__
from bridgepack.api.files import check_place, staged_report
from bridgepack.api.progress import shows_progress
from bridgepack.api.targets import Recipe, recipe_of
from bridgepack.bridge.targets import Target, recipe_target, saying_places
from bridgepack.checking.options import CheckOptions
from bridgepack.checking.overview import Overview, overview_of
from bridgepack.checking.sign_off import SignOff
from bridgepack.checking.sign_off import sign_off as sign_off_of
from bridgepack.checking.written_report import WrittenReport
from bridgepack.config.arguments import check_arguments, local_path
from bridgepack.config.load import load_recipe
from bridgepack.data.artifact.artifact import REPORT_FILE
from bridgepack.data.artifact.discovery import find_shards
from bridgepack.data.artifact.manifest import MANIFEST_FILE
from bridgepack.data.reading.remote import CloudPath, artifact_place
from bridgepack.data.tasks import Progress
from bridgepack.errors import ConfigError
from bridgepack.reporting.html.pages import Page, page_html
from bridgepack.reporting.results.overview_packs import name_of
from bridgepack.reporting.results.overviews import overview_blocks
from bridgepack.reporting.results.sign_offs import sign_off_blocks


@shows_progress
@check_arguments
@saying_places
def report(
    artifact: str | Path,
    *,
    output: str | Path | None = None,
    sign_off: str | Path | None = None,
    given: Mapping[str, Any] | None = None,
    recipe: Recipe | Target | None = None,
    bridge_version: str | None = None,
    num_workers: int = 1,
    trust_remote_code: bool = False,
    progress: Progress | None = None,
) -> WrittenReport:
    """Write an artifact as one HTML page; return its path and the report of the rules.

    Example: `bridgepack.report("packed").files["output"]`.

    Args:
        artifact: folder or object-store URL of the artifact; or packed files of another tool.
        output: file of the page (default: `report.html` in the artifact; required for a URL).
        sign_off: file of the page that signs a run off: data, masks, findings, topology, steps, memory and what was not
            checked (default: none is written).
        given: facts about packs without a manifest, e.g. `{"packed_sequence_size": 4096}`.
        recipe: the recipe of the run that reads the packs, to judge both (default: only the packs are judged).
        bridge_version: version of Megatron-Bridge to judge for; with `recipe`, the page says what an upgrade changes.
        num_workers: maximum worker processes.
        trust_remote_code: run Python code that comes with the tokenizer, if the packs' recipe names such a one, to
            compare the masks for `sign_off`.
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
        trust_remote_code=trust_remote_code,
        progress=progress,
    )
    return write_report(
        place,
        options,
        output=None if output is None else local_path(output, "output"),
        sign_off_file=None if sign_off is None else local_path(sign_off, "sign_off"),
        target=None if run is None else run.reading(place),
    )


def _run_of(recipe: Recipe | Target) -> Target:
    """Return the target of a recipe; raises ConfigError for one of another kind: it states no steps and sizes."""
    if not isinstance(recipe, Target):
        recipe = recipe_target(load_recipe(recipe) if isinstance(recipe, Mapping) else recipe)
    recipe_of(recipe)
    return recipe


def write_report(
    artifact: Path,
    options: CheckOptions,
    *,
    output: Path | None = None,
    sign_off_file: Path | None = None,
    target: Target | None = None,
) -> WrittenReport:
    """Write an artifact's page and sign-off page; return their paths and the report of the rules.

    `artifact` may be packed files of another tool, too: a folder, a file or a pattern; `output` is by default
    `report.html` in the artifact, `target` as of `artifact_page`.

    Raises:
        ConfigError: a file cannot be written, or would overwrite the artifact.
        ArtifactError: the folder is not an artifact.
        RuleCrashError: a rule raised.
    """
    check_place("--output", output, artifact, suffix=".html", exception=REPORT_FILE)
    check_place("--sign-off", sign_off_file, artifact, suffix=".html")
    if output is None and isinstance(artifact, CloudPath):
        raise ConfigError(f"--output is not given; a report cannot be written to {str(artifact)!r}. Give a local file.")
    has_manifest = (artifact / MANIFEST_FILE).exists()
    if output is None and not has_manifest and find_shards(artifact).paths:
        raise ConfigError("--output is not given; for packs without a manifest it is required. Give a file.")
    output = output or artifact / REPORT_FILE
    if sign_off_file is not None and sign_off_file.resolve() == output.resolve():
        raise ConfigError(f"--sign-off is {str(sign_off_file)!r}, as --output is. Choose another name for one of them.")
    overview = overview_of(artifact, options, target)
    run = None
    if sign_off_file is not None:
        recipe = None if target is None else target.recipe
        run = sign_off_of(overview, recipe, is_trusted=options.trust_remote_code)
    with (
        staged_report(output, overview_html(overview)),
        staged_report(sign_off_file, "" if run is None else sign_off_html(run), option="--sign-off"),
    ):
        pass
    files = {"output": output, "sign_off": sign_off_file}
    return WrittenReport(report=overview.report, files=files, num_doubted=0 if run is None else run.num_doubted)


def overview_html(overview: Overview) -> str:
    """Return an artifact's report as a page."""
    return page_html(Page(kind="bridgepack report", title=name_of(overview), blocks=[*overview_blocks(overview)]))


def sign_off_html(run: SignOff) -> str:
    """Return the page that signs a run off."""
    title = f"{run.recipe.name} on {name_of(run.page)}"
    kind = f"Sign-off of a packed run, by bridgepack {__version__}"
    return page_html(Page(kind=kind, title=title, blocks=[*sign_off_blocks(run)]))
