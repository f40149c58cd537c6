"""API functions that build and re-pack artifacts, and say what that would do."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridgepack.api.progress import shows_progress
from bridgepack.api.targets import Recipe, recipe_of
from bridgepack.bridge.targets import Target, saying_places
from bridgepack.config.arguments import check_arguments, local_path
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.build import build_artifact, checked_places, planned_build
from bridgepack.data.reading.kept_rows import recipe_with_rows
from bridgepack.data.repack import RepackPlan, repack_artifact
from bridgepack.data.repack import plan_repack as planned_repack
from bridgepack.data.results import ArtifactPlan, BuildOptions, BuildResult, build_options
from bridgepack.data.store.store import store_folder
from bridgepack.data.tasks import Progress
from bridgepack.data.tokenizers.trust import refuse_tokenizer_code
from bridgepack.planning.balance import balance_for, balance_of_repack


@shows_progress
@check_arguments
@saying_places
def build(
    recipe: Recipe | Target,
    *,
    output: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    num_workers: int | None = None,
    store: str | Path | None = None,
    memory: str | None = None,
    engine: str = "local",
    ray_address: str | None = None,
    replace: bool = False,
    progress: Progress | None = None,
) -> BuildResult:
    """Build a packed artifact, or return the existing one with the same fingerprint.

    Example: `bridgepack.build("recipes/mine.yaml", output="packed", overrides={"packing.seed": 7})`.

    Args:
        recipe: an SFTRecipe, a dict of its fields, its location, or a loaded target. Data in a dict or in `overrides`
            may be a `datasets.Dataset`, a pandas DataFrame or a list of dicts: its rows are kept in the token store.
        output: folder of the artifact; by default the recipe's, else `artifacts/NAME-FINGERPRINT`. For an object-store
            URL, the artifact is built in that default folder and copied to the URL.
        overrides: dotted path -> value.
        num_workers: maximum worker processes (default 1) or Ray tasks (default: its CPUs); 0 uses only this process.
        store: folder of the token store; by default `.bridgepack/tokens` beside the artifact.
        memory: memory limit per machine, e.g. `8G`; by default 75% of the free memory.
        engine: `local` (processes on this machine) or `ray`.
        ray_address: `HOST:PORT` of a Ray cluster; by default RAY_ADDRESS, else Ray is started on this machine.
        replace: overwrite an artifact with another fingerprint at the output, once the new one is complete.
        progress: receives progress updates; by default, a notebook shows bars.

    Raises:
        BridgepackError: the build failed; the message says what to do.
    """
    options = _options(num_workers, store, memory, engine, ray_address, replace=replace)
    sft_recipe = _recipe(recipe, overrides, output, options)
    return build_artifact(
        sft_recipe, output=output, balance=balance_for(sft_recipe), progress=progress, options=options
    )


@shows_progress
@check_arguments
@saying_places
def plan_build(
    recipe: Recipe | Target,
    *,
    output: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    num_workers: int | None = None,
    store: str | Path | None = None,
    memory: str | None = None,
    engine: str = "local",
    ray_address: str | None = None,
    replace: bool = False,
    trust_remote_code: bool = False,
    progress: Progress | None = None,
) -> ArtifactPlan:
    """Return what `build` would do with these arguments, whose fingerprint needs the inputs' contents; writes nothing.

    Rows given in memory are kept in the token store, as by `build`.

    Example: `bridgepack.plan_build("recipes/mine.yaml").is_built`.

    Args:
        recipe: as for `build`, as are the other arguments.
        output: folder of the artifact.
        overrides: dotted path -> value.
        num_workers: maximum worker processes.
        store: folder of the token store.
        memory: memory limit per machine.
        engine: `local` or `ray`.
        ray_address: `HOST:PORT` of a Ray cluster.
        replace: whether another artifact at the output would be overwritten.
        trust_remote_code: run Python code that comes with the tokenizer, if the recipe names such a one; `build` does.
        progress: receives progress updates; by default, a notebook shows bars.

    Raises:
        BridgepackError: as `build`.
    """
    options = _options(num_workers, store, memory, engine, ray_address, replace=replace)
    sft_recipe = _recipe(recipe, overrides, output, options)
    refuse_tokenizer_code(sft_recipe, is_trusted=trust_remote_code)
    copy = checked_places(sft_recipe, output=output, options=options)
    how: dict[str, Any] = {
        "output": output,
        "balance": balance_for(sft_recipe),
        "progress": progress,
        "options": options,
    }
    with planned_build(sft_recipe, copy=copy, **how) as plan:
        return plan


def _options(
    num_workers: int | None,
    store: str | Path | None,
    memory: str | None,
    engine: str = "local",
    ray_address: str | None = None,
    *,
    replace: bool,
) -> BuildOptions:
    return build_options(
        store=None if store is None else store_folder(store),
        num_workers=num_workers,
        memory=memory,
        engine=engine,
        ray_address=ray_address,
        replace=replace,
        default_workers=1 if engine == "local" else len(os.sched_getaffinity(0)),
    )


def _recipe(
    recipe: Recipe | Target, overrides: Mapping[str, Any] | None, output: str | Path | None, options: BuildOptions
) -> SFTRecipe:
    if isinstance(recipe, Target):
        recipe = recipe_of(recipe)
    return recipe_with_rows(recipe, overrides, output=output, store=options.store)


@shows_progress
@check_arguments
def repack(
    artifact: str | Path,
    overrides: Mapping[str, Any],
    *,
    output: str | Path | None = None,
    num_workers: int | None = None,
    store: str | Path | None = None,
    memory: str | None = None,
    engine: str = "local",
    ray_address: str | None = None,
    replace: bool = False,
    trust_remote_code: bool = False,
    progress: Progress | None = None,
) -> BuildResult:
    """Pack an artifact's sequences again, with other sizes or for another topology, without tokenising.

    Only where `preprocessing.over_long` cuts conversations between exchanges does another maximum length read the
    inputs, and tokenise those conversations again.

    Example: `bridgepack.repack("packed", {"packing.packed_sequence_size": 32768}, output="packed-32k")`.

    Args:
        artifact: folder whose sequences are packed again.
        overrides: dotted path -> value.
        output: folder of the new artifact; by default `NAME-FINGERPRINT` beside the old one.
        num_workers: maximum worker processes (default 1).
        store: folder of the token store; by default `.bridgepack/tokens` beside the artifact.
        memory: memory limit, e.g. `8G`.
        engine: `local` or `ray`, as for `build`.
        ray_address: `HOST:PORT` of a Ray cluster, as for `build`.
        replace: as for `build`.
        trust_remote_code: run Python code that comes with the tokenizer, if the artifact's recipe names such a one and
            rows are tokenised again.
        progress: receives progress updates; by default, a notebook shows bars.

    Raises:
        BridgepackError: ConfigError, DataError, ArtifactError or StoreError, each saying what to do.
    """
    folder = local_path(artifact, "artifact")
    return repack_artifact(
        folder,
        overrides,
        output=None if output is None else local_path(output, "output"),
        balance=balance_of_repack(folder, overrides),
        progress=progress,
        options=_options(num_workers, store, memory, engine, ray_address, replace=replace),
        is_trusted=trust_remote_code,
    )


@check_arguments
def plan_repack(artifact: str | Path, overrides: Mapping[str, Any], *, output: str | Path | None = None) -> RepackPlan:
    """Return what `repack` would do with these arguments; writes nothing.

    Example: `bridgepack.plan_repack("packed", {"packing.packed_sequence_size": 32768}).output`.

    Args:
        artifact: folder whose sequences are packed again.
        overrides: dotted path -> value.
        output: folder of the new artifact.

    Raises:
        BridgepackError: as `repack`.
    """
    folder = local_path(artifact, "artifact")
    place = None if output is None else local_path(output, "output")
    return planned_repack(folder, overrides, output=place, balance=balance_of_repack(folder, overrides))
