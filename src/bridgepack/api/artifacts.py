"""API functions that show an artifact and trace what a run reads of it."""

from pathlib import Path
from typing import Any, overload

from bridgepack.config.arguments import check_arguments, stated_options
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.inspection import ArtifactView, PackView, view_pack
from bridgepack.data.reading.remote import artifact_place
from bridgepack.errors import BridgepackError, ConfigError
from bridgepack.planning.balance import waiting_in
from bridgepack.proof.packs import RunOptions, TracedRun, opened_artifact, recorded_recipe
from bridgepack.proof.trace.records import PackTrace, SourceTrace, StepTrace
from bridgepack.proof.trace.trace import parse_source, trace_pack, trace_source, trace_step
from bridgepack.records import TRAIN
from bridgepack.records.messages import user_paths_in_errors


@overload
def inspect(artifact: str | Path, *, pack: int, split: str | None = None) -> PackView: ...


@overload
def inspect(artifact: str | Path, *, pack: None = None, split: None = None) -> ArtifactView: ...


@check_arguments
def inspect(artifact: str | Path, *, pack: int | None = None, split: str | None = None) -> PackView | ArtifactView:
    """Return the statistics of an artifact, or one of its packs with its decoded text.

    Example: `bridgepack.inspect("packed", pack=3).sequences`.

    Args:
        artifact: its folder, or its URL in an object store.
        pack: index of a pack in the split, from 0; without it, the result is about the whole artifact.
        split: the pack's split, `training` (default) or `validation`.

    Raises:
        ConfigError: a split is given without a pack.
        ArtifactError: the folder is not an artifact, or the split or the pack does not exist.
    """
    open_artifact = Artifact(artifact_place(artifact))
    if pack is not None:
        return view_pack(open_artifact, TRAIN if split is None else split, pack)
    if split is not None:
        raise ConfigError(
            f"split is {split!r}, but no pack is given. Give a pack, e.g. pack=0, or leave out split to see all."
        )
    manifest = open_artifact.manifest
    try:
        waiting = waiting_in(open_artifact, recorded_recipe(open_artifact, {}))
    except BridgepackError:  # the artifact records no recipe, or no token cost is known
        waiting = None
    return ArtifactView(folder=open_artifact.folder, manifest=manifest, waiting=waiting)


@check_arguments
def trace(
    artifact: str | Path,
    *,
    step: int | None = None,
    rank: int | None = None,
    pack: int | None = None,
    source: str | None = None,
    split: str = TRAIN,
    limit: int = 20,
    **run: Any,
) -> StepTrace | PackTrace | SourceTrace:
    """Return what each rank reads at a step, when a pack is read, or where a source row ended up.

    Example: `bridgepack.trace("packed", step=12, rank=0).to_pandas()`.

    Args:
        artifact: its folder, or its URL in an object store.
        step: training step as Megatron-Bridge logs it, from 1; with `pack`, the result includes the pack's text.
        rank: only the packs of this global rank; needs `step`.
        pack: index of a pack in the split, from 0; without `step`, the result says when it is read.
        source: `FILE:ROW` of a source row, counted from 1; not with `step` or `pack`.
        split: `training` or `validation`.
        limit: maximum read times listed.
        run: fields of `bridgepack.proof.packs.RunOptions`: recipe, overrides, world_size, context, bridge_version,
            resume_step.

    Raises:
        ConfigError: no question is given, or the arguments contradict each other or do not exist.
        ArtifactError: the folder is not an artifact, or cannot be read.
    """
    if (source is not None) == (step is not None or pack is not None):
        raise ConfigError("trace needs step, pack, or source alone, e.g. step=12. Give one of these.")
    if rank is not None and step is None:
        raise ConfigError(f"rank is {rank}; the packs of a rank depend on the step. Give step too.")
    traced_run = TracedRun(opened_artifact(artifact_place(artifact)), stated_options(RunOptions, run, "trace"))
    with user_paths_in_errors(traced_run.user_path):
        if source is not None:
            return trace_source(traced_run, *parse_source(source), limit=limit)
        if step is None:
            assert pack is not None
            return trace_pack(traced_run, split, pack, limit=limit)
        return trace_step(traced_run, split, step, rank=rank, pack=pack)
