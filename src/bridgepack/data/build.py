"""Composes the stages of a build: inputs, tokens in the store, plan, shards, manifest; goes on where one was ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bridgepack.config.data import as_sources
from bridgepack.config.recipe import SFTRecipe
from bridgepack.data import staging
from bridgepack.data.build_errors import Kept, kept_on_errors
from bridgepack.data.build_values import BuildOptions, BuildPlan, BuildResult
from bridgepack.data.building import Building
from bridgepack.data.built import existing_manifest, refuse_unwritable
from bridgepack.data.execution import Progress, SilentProgress
from bridgepack.data.fingerprint import fingerprint
from bridgepack.data.hashing import hashing
from bridgepack.data.inputs import InputFile, file_stamp, find_inputs
from bridgepack.data.store_keys import code_digest
from bridgepack.data.token_store import default_store, opened_store
from bridgepack.data.worker_pool import WorkerServer, worker_server
from bridgepack.records import TRAIN, VALIDATION

DEFAULT_FOLDER = "artifacts"


def build_artifact(
    recipe: SFTRecipe,
    *,
    output: Path | None = None,
    artifacts: Path = Path(DEFAULT_FOLDER),
    progress: Progress | None = None,
    options: BuildOptions | None = None,
    server: WorkerServer | None = None,
) -> BuildResult:
    """Build the artifact of a recipe, go on with a build of it that was ended, or find that it is there already.

    Args:
        recipe: what to build.
        output: folder of the artifact; by default `NAME-FINGERPRINT` in `artifacts`. An artifact that is there and has
            another fingerprint is replaced once the new one is complete.
        artifacts: folder that a new artifact goes into where `output` does not say.
        progress: told how far it is.
        options: how it works.
        server: forks workers, where one was started already.

    Raises:
        ConfigError: the recipe contradicts itself.
        TokenizerError: the tokenizer cannot be loaded or cannot do what the recipe asks.
        DataError: an input is missing or unreadable, nothing is left to pack, or a bad row stops the build.
        ArtifactError: the output cannot be written, or holds something else.
        StoreError: the token store cannot be written.
        BuildInterrupted: by Ctrl-C, saying what is kept.
        ArtifactInUseError: another build is writing it.
    """
    shown, options = progress or SilentProgress(), options or BuildOptions()
    expected = output or artifacts / recipe.name
    refuse_unwritable(expected, options.store or default_store(expected))
    with _prepared(recipe, output, artifacts, shown, options, server) as (plan, server):
        if plan.is_built and plan.existing is not None:
            staging.remove_leftovers(plan.output)
            return BuildResult(output=plan.output, manifest=plan.existing, was_built_before=True)
        identity = f"{plan.fingerprint}-{code_digest()}"
        place = options.store or default_store(plan.output)
        kept = Kept(output=str(plan.output), store=str(place))
        with (
            kept_on_errors(kept),
            staging.staging(plan.output, identity) as folder,
            opened_store(place) as store,
        ):
            manifest = Building(plan, folder, store, shown, options, kept).run(server)
            staging.move_into_place(folder / staging.ARTIFACT, plan.output)
    replaced = plan.existing.fingerprint if plan.existing is not None else None
    return BuildResult(
        output=plan.output, manifest=manifest, was_built_before=False, replaced_fingerprint=replaced, kept=kept
    )


@contextmanager
def planned_build(
    recipe: SFTRecipe,
    *,
    output: Path | None = None,
    artifacts: Path = Path(DEFAULT_FOLDER),
    progress: Progress | None = None,
    options: BuildOptions | None = None,
    server: WorkerServer | None = None,
) -> Iterator[BuildPlan]:
    """Give what a build would do; only Hugging Face data sets are written, to a folder that goes afterwards.

    Raises:
        ConfigError, TokenizerError, DataError, ArtifactError: as `build_artifact`.
    """
    shown, options = progress or SilentProgress(), options or BuildOptions()
    with _prepared(recipe, output, artifacts, shown, options, server) as (plan, _):
        yield plan


@contextmanager
def _prepared(
    recipe: SFTRecipe,
    output: Path | None,
    artifacts: Path,
    progress: Progress,
    options: BuildOptions,
    server: WorkerServer | None,
) -> Iterator[tuple[BuildPlan, WorkerServer | None]]:
    """Give a plan and the process that workers are forked from, which loads the tokenizer while inputs are hashed."""
    resolved = recipe.resolve()
    if output is not None:
        staging.refuse_foreign_folder(output)
    load = partial(_load, recipe.model_dump_json())
    with ExitStack() as stack:
        if server is None and options.num_workers > 0:
            server = stack.enter_context(worker_server())
        if server is not None:
            server.begin(load)
        files = _find_files(
            recipe,
            Path(stack.enter_context(TemporaryDirectory(prefix=".bridgepack-", dir=_shared_place(output, options)))),
        )
        stamps = {file.path: file_stamp(file.path) for members in files.values() for file in members}
        with hashing(files, options.num_workers) as hashes:
            tokenizer = load() if server is None else server.prepared()
            inputs = hashes.records(progress)
        digest = fingerprint(resolved, tokenizer, inputs)
        folder = output or artifacts / f"{recipe.name}-{digest[:12]}"
        staging.refuse_foreign_folder(folder)
        plan = BuildPlan(
            resolved=resolved,
            output=folder,
            fingerprint=digest,
            files=files,
            stamps=stamps,
            inputs=inputs,
            tokenizer=tokenizer,
            existing=existing_manifest(folder),
        )
        yield plan, server


def _load(recipe_json: str) -> dict[str, Any]:
    """Load the tokenisation stage afresh and return its tokenizer's identity."""
    from bridgepack.data.stages import forget_stage, load_identity  # templates and tokenizers, which workers need

    forget_stage()
    return load_identity(recipe_json)


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
