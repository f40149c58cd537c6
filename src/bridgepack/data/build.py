"""Composes the stages of a build: inputs, tokens in the store, plan, shards, manifest; goes on where one was ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bridgepack.config.recipe.data import as_sources
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data import output as staging
from bridgepack.data.building import Building
from bridgepack.data.built import existing_manifest, refuse_unwritable
from bridgepack.data.identity import fingerprint, library_versions
from bridgepack.data.producing import produce
from bridgepack.data.reading.hashing import hashing
from bridgepack.data.reading.inputs import InputFile, file_stamp, find_inputs
from bridgepack.data.results import BuildOptions, BuildPlan, BuildResult
from bridgepack.data.stages.write import ArtifactSpec
from bridgepack.data.store.keys import code_digest
from bridgepack.data.store.store import default_store
from bridgepack.data.tasks import InThisProcess, Progress, SilentProgress
from bridgepack.data.workers.pool import WorkerPool
from bridgepack.data.workers.process import TOKENISING, preload
from bridgepack.data.workers.stage_loading import StageLoading
from bridgepack.records import TRAIN, VALIDATION

DEFAULT_FOLDER = "artifacts"


def build_artifact(
    recipe: SFTRecipe,
    *,
    output: Path | None = None,
    artifacts: Path = Path(DEFAULT_FOLDER),
    progress: Progress | None = None,
    options: BuildOptions | None = None,
) -> BuildResult:
    """Build the artifact of a recipe, go on with a build of it that was ended, or find that it is there already.

    Args:
        recipe: what to build.
        output: folder of the artifact; by default the recipe's own, else `NAME-FINGERPRINT` in `artifacts`. An artifact
            that is there and has another fingerprint is replaced once the new one is complete.
        artifacts: folder that a new artifact goes into where `output` does not say.
        progress: told how far it is.
        options: how it works.

    Raises:
        ConfigError: the recipe contradicts itself.
        TokenizerError: the tokenizer cannot be loaded or cannot do what the recipe asks.
        DataError: an input is missing or unreadable, nothing is left to pack, or a bad row stops the build.
        ArtifactError: the output cannot be written, or holds something else.
        StoreError: the token store cannot be written.
        BuildInterrupted: by Ctrl-C, saying what is kept.
        ArtifactInUseError: another build is writing it.
    """
    shown, options, output = progress or SilentProgress(), options or BuildOptions(), output or _own_output(recipe)
    expected = output or artifacts / recipe.name
    refuse_unwritable(expected, options.store or default_store(expected))
    with _prepared(recipe, output, artifacts, shown, options, loads_engine=True) as (plan, loading):
        if plan.is_built and plan.existing is not None:
            staging.remove_leftovers(plan.output)
            return BuildResult(output=plan.output, manifest=plan.existing, was_built_before=True)
        return produce(
            plan,
            options.store or default_store(plan.output),
            lambda folder, store, kept: Building(plan, folder, store, kept, shown, options).tokens(loading),
            shown,
        )


@contextmanager
def planned_build(
    recipe: SFTRecipe,
    *,
    output: Path | None = None,
    artifacts: Path = Path(DEFAULT_FOLDER),
    progress: Progress | None = None,
    options: BuildOptions | None = None,
) -> Iterator[BuildPlan]:
    """Give what a build would do; only Hugging Face data sets are written, to a folder that goes afterwards.

    Raises:
        ConfigError, TokenizerError, DataError, ArtifactError: as `build_artifact`.
    """
    shown, options, output = progress or SilentProgress(), options or BuildOptions(), output or _own_output(recipe)
    with _prepared(recipe, output, artifacts, shown, options, loads_engine=False) as (plan, _):
        yield plan


@contextmanager
def _prepared(
    recipe: SFTRecipe,
    output: Path | None,
    artifacts: Path,
    progress: Progress,
    options: BuildOptions,
    *,
    loads_engine: bool,
) -> Iterator[tuple[BuildPlan, StageLoading]]:
    """Give a plan and the first worker, which loads the tokenizer while inputs are hashed.

    It may go on and load what encodes texts; `Building` asks for what came of it.
    """
    resolved = recipe.resolve()
    if output is not None:
        staging.refuse_foreign_folder(output)
    with ExitStack() as stack:
        if options.num_workers > 0:
            preload(TOKENISING)
        loading = StageLoading(
            stack.enter_context(WorkerPool()) if options.num_workers > 0 else InThisProcess(), recipe
        )
        files = _find_files(
            recipe,
            Path(stack.enter_context(TemporaryDirectory(prefix=".bridgepack-", dir=_shared_place(output, options)))),
        )
        if loads_engine:
            loading.begin_engine([file for members in files.values() for file in members])
        stamps = {file.path: file_stamp(file.path) for members in files.values() for file in members}
        with hashing(files, options.num_workers) as hashes:
            tokenizer = loading.identity()
            inputs = hashes(progress)
        digest = fingerprint(resolved, tokenizer, inputs)
        folder = output or artifacts / f"{recipe.name}-{digest[:12]}"
        staging.refuse_foreign_folder(folder)
        plan = BuildPlan(
            output=folder,
            spec=ArtifactSpec(
                resolved=resolved,
                fingerprint=digest,
                tokenizer=tokenizer,
                versions=library_versions(),
                inputs=inputs,
                build=code_digest(),
            ),
            existing=existing_manifest(folder),
            files=files,
            stamps=stamps,
        )
        yield plan, loading


def _own_output(recipe: SFTRecipe) -> Path | None:
    """Return the folder that a recipe names for its packs."""
    return None if recipe.artifact is None else Path(recipe.artifact)


def _shared_place(output: Path | None, options: BuildOptions) -> Path | None:
    """Return where data sets that are written out first can be seen by all nodes; None where there is one machine."""
    if options.ray is None:
        return None
    place = (output or Path(DEFAULT_FOLDER)).absolute()
    return next(folder for folder in place.parents if folder.is_dir())


def _find_files(recipe: SFTRecipe, scratch: Path) -> dict[str, list[InputFile]]:
    files = {TRAIN: find_inputs(as_sources(recipe.data.train), "data.train", TRAIN, scratch)}
    if recipe.data.validation is not None:
        sources = as_sources(recipe.data.validation)
        files[VALIDATION] = find_inputs(sources, "data.validation", VALIDATION, scratch)
    return files
