"""API functions that check, compare and explain, one per command."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridgepack.bridge.targets import Target, load_target
from bridgepack.canaries.canary import canary
from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions, named_environment
from bridgepack.config.arguments import checked, stated_options
from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.inspection import PackView, view_pack
from bridgepack.data.reading.kept_rows import with_kept_rows
from bridgepack.data.reading.remote import artifact_place
from bridgepack.data.tasks import Progress
from bridgepack.errors import ConfigError
from bridgepack.proof.diff.diff import DEFAULT_LIMIT, diff_artifacts
from bridgepack.proof.diff.records import DiffReport
from bridgepack.proof.masks.masks import MaskOptions, check_masks
from bridgepack.proof.masks.records import MaskReport
from bridgepack.proof.packs import RunOptions, TracedRun, opened_artifact
from bridgepack.proof.trace.records import PackTrace, SourceTrace, StepTrace
from bridgepack.proof.trace.trace import parse_source, trace_pack, trace_source, trace_step
from bridgepack.proof.verify.records import VerifyReport
from bridgepack.proof.verify.verify import VerifyOptions, verify_artifact
from bridgepack.records import TRAIN
from bridgepack.reporting.checks import explained
from bridgepack.reporting.html.files import report
from bridgepack.rules.engine.report import CheckReport

__all__ = ["canary", "check", "diff", "explain", "inspect", "masks", "report", "trace", "verify"]


@checked
def check(target: Any, **options: Any) -> CheckReport:
    """Return the check report on a recipe, a ConfigContainer or an artifact.

    Example: `bridgepack.check("recipes/mine.yaml", artifact="packed", world_size=16).has_errors`.

    Args:
        target: an artifact's folder, or packed files of another tool; an SFTRecipe, or its fields as a dict, with data
            as for `build`; a ConfigContainer, or the location of one as on the command line.
        options: fields of `bridgepack.checking.options.CheckOptions`: artifact, world_size, bridge_version, overrides,
            select, ignore, ... `artifact` may be text, `environment` is `here` or a file; None means not given.

    Raises:
        ConfigError: the target or an option is unknown.
        ArtifactError: the folder is not an artifact.
        RuleCrashError: a rule raised.
    """
    stated = {name: value for name, value in options.items() if value is not None}
    if isinstance(stated.get("environment"), (str, Path)):
        stated["environment"] = named_environment(stated["environment"])
    if isinstance(stated.get("artifact"), str):
        stated["artifact"] = artifact_place(stated["artifact"])
    if isinstance(target, str | Path) and stated.get("overrides"):
        target = load_target(target)  # here, so that its code runs once
    if isinstance(target, Mapping | SFTRecipe):
        target, stated["overrides"] = with_kept_rows(target, stated.get("overrides"))
    elif isinstance(target, Target) and target.recipe is not None:
        _, stated["overrides"] = with_kept_rows(target.recipe, stated.get("overrides"))
    chosen = stated_options(CheckOptions, {name: value for name, value in stated.items() if value is not None}, "check")
    if isinstance(target, Target):
        target = target.override(chosen.overrides).reading(chosen.artifact or target.packs)
    return check_target(target, chosen)


@checked
def inspect(artifact: str | Path, *, row: int = 0, split: str = TRAIN) -> PackView:
    """Return one pack of an artifact with its decoded text.

    Example: `bridgepack.inspect("packed", row=3).sequences`.

    Args:
        artifact: its folder, or its URL in an object store.
        row: 0-based position of the pack in the split; by default the first.
        split: `training` or `validation`.

    Raises:
        ArtifactError: the folder is not an artifact, or the split or the row does not exist.
    """
    return view_pack(Artifact(artifact_place(artifact)), split, row)


@checked
def verify(artifact: str | Path, **options: Any) -> VerifyReport:
    """Return the result of deriving an artifact's packs again from its sources and comparing them.

    Example: `bridgepack.verify("packed", num_packs=None).outcome` is `same`, `differs` or `could not run`.

    Args:
        artifact: its folder, or its URL in an object store.
        options: fields of `bridgepack.proof.verify.verify.VerifyOptions`: num_packs (None for all), seed,
            overrides (current paths of sources), num_workers, scratch, progress.

    Raises:
        ArtifactError: the folder is not an artifact.
        ConfigError: an option is unknown, or an override changes something other than the path of a source.
        StoreError: the token store does not exist.
    """
    return verify_artifact(artifact_place(artifact), stated_options(VerifyOptions, options, "verify"))


@checked
def masks(target: str | Path | SFTRecipe | Mapping[str, Any], **options: Any) -> MaskReport:
    """Return the result of comparing the loss masks of a recipe's rows with independently derived ones.

    Example: `bridgepack.masks("recipes/mine.yaml", num_rows=None).findings`.

    Args:
        target: a recipe, with data as for `build`, or the folder of an artifact, whose own recipe is used.
        options: fields of `bridgepack.proof.masks.masks.MaskOptions`: num_rows (None for all), seed, split, overrides,
            limit, progress.

    Raises:
        BridgepackError: ConfigError, ArtifactError, DataError or TokenizerError, each saying what to do.
    """
    target, overrides = with_kept_rows(target, options.get("overrides"))
    options |= {} if overrides is None else {"overrides": overrides}
    judged = load_recipe(target) if isinstance(target, Mapping) else target
    return check_masks(judged, stated_options(MaskOptions, options, "masks"))


@checked
def diff(
    first: str | Path, second: str | Path, *, limit: int = DEFAULT_LIMIT, progress: Progress | None = None
) -> DiffReport:
    """Return how two artifacts differ: sequences, masks, statistics, settings.

    Example: `bridgepack.diff("packed", "packed-32k").is_same`.

    Args:
        first: folder of the first artifact, or its URL in an object store.
        second: the same for the second artifact.
        limit: maximum sequences shown per kind; all are counted.
        progress: receives progress updates.

    Raises:
        ArtifactError: a folder is not an artifact, was changed, or cannot be read.
    """
    return diff_artifacts(artifact_place(first), artifact_place(second), limit=limit, progress=progress)


@checked
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
        pack: 0-based row of the split; without `step`, the result says when it is read.
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
    traced = TracedRun(opened_artifact(artifact_place(artifact)), stated_options(RunOptions, run, "trace"))
    if source is not None:
        return trace_source(traced, *parse_source(source), limit=limit)
    if step is None:
        assert pack is not None
        return trace_pack(traced, split, pack, limit=limit)
    return trace_step(traced, split, step, rank=rank, pack=pack)


@checked
def explain(rule: str = "BP") -> dict[str, Any] | list[dict[str, Any]]:
    """Return a rule as plain values: why it matters, a bad and a good setting, the fix, the evidence.

    Example: `bridgepack.explain("BP101")["why"]`.

    Args:
        rule: a code or a name; the prefix of a code, e.g. `BP1`, returns the list of its rules; by default all.

    Raises:
        ConfigError: no such rule.
    """
    return explained(rule)
