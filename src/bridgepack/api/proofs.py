"""API functions that derive again or compare: prove, its parts sources, masks, served and training, and diff."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bridgepack.api.files import check_place, staged_report
from bridgepack.api.progress import shows_progress
from bridgepack.api.targets import with_rows_on_disk
from bridgepack.bridge.targets import saying_places
from bridgepack.canaries.canary import run_canary
from bridgepack.canaries.records import CanaryOptions, CanaryReport
from bridgepack.config.arguments import check_arguments, local_path, stated_options
from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.reading.remote import artifact_place
from bridgepack.data.tasks import Progress
from bridgepack.proof.diff.diff import DEFAULT_LIMIT, diff_artifacts
from bridgepack.proof.diff.records import DiffReport
from bridgepack.proof.mask_check import check_masks
from bridgepack.proof.masks.masks import MaskOptions
from bridgepack.proof.masks.records import MaskReport
from bridgepack.proof.parts import Proof, ProofOptions, prove_target
from bridgepack.proof.served.records import ServedReport
from bridgepack.proof.served.served import check_served
from bridgepack.proof.verify.records import VerifyReport
from bridgepack.proof.verify.verify import VerifyOptions, verify_artifact
from bridgepack.reporting.html.pages import Page, page_html
from bridgepack.reporting.results.diffs import diff_blocks, length_pictures


@shows_progress
@check_arguments
@saying_places
def prove(target: str | Path | SFTRecipe | Mapping[str, Any], **options: Any) -> Proof:
    """Return how the parts of a target came out that can be asked of it; the others say why they were not asked.

    Example: `bridgepack.prove("packed", num_rows=None).parts["masks"].outcome`.

    Args:
        target: an artifact's folder or its URL in an object store; or a recipe, with data as for `build`.
        options: fields of `bridgepack.proof.parts.ProofOptions`: num_packs, num_rows (None for all), seed,
            overrides, num_workers, scratch, progress.

    Raises:
        ConfigError: the recipe does not exist, or an option or an override is invalid.
        ArtifactError: the folder is not an artifact.
    """
    target, options = _target_and_options(target, options)
    return prove_target(target, stated_options(ProofOptions, options, "prove"))


def _target_and_options(
    target: str | Path | SFTRecipe | Mapping[str, Any], options: dict[str, Any]
) -> tuple[str | Path | SFTRecipe, dict[str, Any]]:
    target, options = with_rows_on_disk(target, options)
    return (load_recipe(target) if isinstance(target, Mapping) else target), options


@shows_progress
@check_arguments
def sources(artifact: str | Path, **options: Any) -> VerifyReport:
    """Return the result of deriving an artifact's packs again from its sources and comparing them.

    Example: `bridgepack.prove.sources("packed", num_packs=None).outcome` is `same`, `differs` or `could not run`.

    Args:
        artifact: its folder, or its URL in an object store.
        options: fields of `bridgepack.proof.verify.verify.VerifyOptions`: num_packs (None for all), seed,
            overrides (current paths of sources), num_workers, scratch, progress.

    Raises:
        ArtifactError: the folder is not an artifact.
        ConfigError: an option is unknown, or an override changes something other than the path of a source.
    """
    return verify_artifact(artifact_place(artifact), stated_options(VerifyOptions, options, "prove.sources"))


@shows_progress
@check_arguments
@saying_places
def masks(target: str | Path | SFTRecipe | Mapping[str, Any], **options: Any) -> MaskReport:
    """Return the result of comparing the loss masks of a recipe's rows with independently derived ones.

    Example: `bridgepack.prove.masks("recipes/mine.yaml", num_rows=None).findings`.

    Args:
        target: a recipe, with data as for `build`, or the folder of an artifact, whose own recipe is used.
        options: fields of `bridgepack.proof.masks.masks.MaskOptions`: num_rows (None for all), seed, split, overrides,
            limit, progress.

    Raises:
        BridgepackError: ConfigError, ArtifactError, DataError or TokenizerError, each saying what to do.
    """
    target, options = _target_and_options(target, options)
    return check_masks(target, stated_options(MaskOptions, options, "prove.masks"))


@shows_progress
@check_arguments
@saying_places
def served(target: str | Path | SFTRecipe | Mapping[str, Any], **options: Any) -> ServedReport:
    """Return the result of comparing trained answers with what a server sends and the model must then write.

    Example: `bridgepack.prove.served("recipes/mine.yaml", num_rows=None).record.share("equal")`.

    Args:
        target: a recipe, with data as for `build`, or the folder of an artifact, whose own recipe is used.
        options: as for `prove.masks`; for an artifact, `overrides` may also have fields of `serving`.

    Raises:
        BridgepackError: ConfigError, ArtifactError, DataError or TokenizerError, each saying what to do.
    """
    target, options = _target_and_options(target, options)
    return check_served(target, stated_options(MaskOptions, options, "prove.served"))


@shows_progress
@check_arguments
@saying_places
def training(target: str | Path, **options: Any) -> CanaryReport:
    """Return the comparison of loss and gradients in packed and unpacked training of a target, in each layout.

    Example: `bridgepack.prove.training("packed").outcome` is `same`, `differs` or `could not run`.

    Args:
        target: an artifact's folder or a recipe, as on the command line.
        options: fields of `CanaryOptions`: artifact, overrides, tensor, pipeline, context, num_packs, max_tokens,
            device, timeout_s, progress.

    Raises:
        ConfigError: the target or an option is unknown, the host is missing, or the model is not supported.
        ArtifactError: the artifact cannot be read.
    """
    return run_canary(str(target), stated_options(CanaryOptions, options, "prove.training"))


@shows_progress
@check_arguments
def diff(
    first: str | Path,
    second: str | Path,
    *,
    limit: int = DEFAULT_LIMIT,
    html: str | Path | None = None,
    progress: Progress | None = None,
) -> DiffReport:
    """Return how two artifacts differ: sequences, masks, statistics, settings.

    Example: `bridgepack.diff("packed", "packed-32k").is_same`.

    Args:
        first: folder of the first artifact, or its URL in an object store.
        second: the same for the second artifact.
        limit: maximum sequences shown per kind; all are counted.
        html: also write the comparison to this file, as an HTML page.
        progress: receives progress updates; by default, a notebook shows bars.

    Raises:
        ConfigError: the page cannot be written.
        ArtifactError: a folder is not an artifact, was changed, or cannot be read.
    """
    places, page = (artifact_place(first), artifact_place(second)), None if html is None else local_path(html, "html")
    for place in places:
        check_place("--html", page, place, suffix=".html")
    report = diff_artifacts(*places, limit=limit, progress=progress)
    with staged_report(page, _diff_html(report, places) if page else "", option="--html"):
        pass
    return report


def _diff_html(report: DiffReport, places: Sequence[Path]) -> str:
    pictures = length_pictures(report, [Artifact(place) for place in places])
    return page_html(
        Page(kind="bridgepack diff", title="Two artifacts compared", blocks=[*diff_blocks(report, pictures)])
    )
