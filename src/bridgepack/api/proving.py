"""What judges, compares and explains: one function for each of these commands."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridgepack.canary.canary import canary
from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions, named_environment
from bridgepack.config.arguments import checked, stated_options
from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.inspection import PackView, view_pack
from bridgepack.data.reading.cloud_path import artifact_place
from bridgepack.data.tasks import Progress
from bridgepack.errors import ConfigError
from bridgepack.proof.diff.diff import DEFAULT_LIMIT, diff_artifacts
from bridgepack.proof.diff.records import DiffReport
from bridgepack.proof.masks.masks import MaskOptions, check_masks
from bridgepack.proof.masks.records import MaskReport
from bridgepack.proof.packs import opened_artifact
from bridgepack.proof.runs import RunOptions, TracedRun
from bridgepack.proof.trace.records import PackTrace, SourceTrace, StepTrace
from bridgepack.proof.trace.source import parse_source, trace_source
from bridgepack.proof.trace.trace import trace_pack, trace_step
from bridgepack.proof.verify.records import VerifyReport
from bridgepack.proof.verify.verify import VerifyOptions, verify_artifact
from bridgepack.records import TRAIN
from bridgepack.report.html.files import report
from bridgepack.report.rule_texts import explained
from bridgepack.rules.engine.report import CheckReport

__all__ = ["canary", "check", "diff", "explain", "inspect", "masks", "report", "trace", "verify"]


@checked
def check(target: Any, **options: Any) -> CheckReport:
    """Return what the rules say about a recipe, a ConfigContainer or an artifact.

    Example: `bridgepack.check("recipes/mine.yaml", artifact="packed", world_size=16).has_errors`.

    Args:
        target: an artifact's folder, or packed files of another tool; an SFTRecipe or its fields as a dict, a
            ConfigContainer, or where one is, as on the command line.
        options: fields of `bridgepack.checking.options.CheckOptions`: artifact, world_size, bridge_version, overrides,
            select, ignore, ... An artifact may be text, an environment `here` or a file; None is as if left out.

    Raises:
        ConfigError: the target or an option is nothing known.
        ArtifactError: the folder is no artifact.
        RuleCrashError: a rule raised.
    """
    stated = {name: value for name, value in options.items() if value is not None}
    if isinstance(stated.get("environment"), (str, Path)):
        stated["environment"] = named_environment(stated["environment"])
    if isinstance(stated.get("artifact"), str):
        stated["artifact"] = artifact_place(stated["artifact"])
    return check_target(target, stated_options(CheckOptions, stated, "check"))


@checked
def inspect(artifact: str | Path, *, row: int = 0, split: str = TRAIN) -> PackView:
    """Return one pack of an artifact, decoded.

    Example: `bridgepack.inspect("packed", row=3).sequences`.

    Args:
        artifact: its folder, or its URL in an object store.
        row: 0-based position of the pack in the split; by default the first.
        split: `training` or `validation`.

    Raises:
        ArtifactError: when the folder is no artifact, or the split or the row does not exist.
    """
    return view_pack(Artifact(artifact_place(artifact)), split, row)


@checked
def verify(artifact: str | Path, **options: Any) -> VerifyReport:
    """Return whether an artifact is what its sources, or its stored tokens, give when packs are derived anew.

    Example: `bridgepack.verify("packed", num_packs=None).outcome` is `same`, `differs` or `could not run`.

    Args:
        artifact: its folder, or its URL in an object store.
        options: fields of `bridgepack.proof.verify.verify.VerifyOptions`: origin, store, num_packs (None for all),
            seed, overrides (where sources are now), num_workers, scratch, progress.

    Raises:
        ArtifactError: the folder is no artifact.
        ConfigError: an option is nothing known, or an override says something else than where sources are.
        StoreError: there is no such token store.
    """
    return verify_artifact(artifact_place(artifact), stated_options(VerifyOptions, options, "verify"))


@checked
def masks(target: str | Path | SFTRecipe | Mapping[str, Any], **options: Any) -> MaskReport:
    """Return whether the loss masks of a recipe's rows are those of independent derivations.

    Example: `bridgepack.masks("recipes/mine.yaml", num_rows=None).findings`.

    Args:
        target: a recipe, as for `build`, or the folder of an artifact, whose own recipe is taken.
        options: fields of `bridgepack.proof.masks.masks.MaskOptions`: num_rows (None for all), seed, split, overrides,
            limit, progress.

    Raises:
        BridgepackError: ConfigError, ArtifactError, DataError or TokenizerError, each saying what to do.
    """
    judged = load_recipe(target) if isinstance(target, Mapping) else target
    return check_masks(judged, stated_options(MaskOptions, options, "masks"))


@checked
def diff(
    first: str | Path, second: str | Path, *, limit: int = DEFAULT_LIMIT, progress: Progress | None = None
) -> DiffReport:
    """Return how two artifacts differ: sequences, masks, statistics, settings.

    Example: `bridgepack.diff("packed", "packed-32k").is_same`.

    Args:
        first: folder of the one, or its URL in an object store.
        second: the same of the other.
        limit: most sequences of each kind that are shown; all are counted.
        progress: told how far it is.

    Raises:
        ArtifactError: a folder is no artifact, was changed, or cannot be read.
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
    """Return what ranks read at a step, when a pack is read, or where a source row went.

    Example: `bridgepack.trace("packed", step=12, rank=0).to_pandas()`.

    Args:
        artifact: its folder, or its URL in an object store.
        step: as the host logs it, from 1; with a pack, its text comes along.
        rank: of a step, the global rank to look at.
        pack: 0-based row of the split; without a step, when it is read.
        source: `FILE:ROW` of a source, rows counted from 1; alone.
        split: `training` or `validation`.
        limit: most times of reading that are listed.
        run: fields of `bridgepack.proof.runs.RunOptions`: recipe, overrides, world_size, context, bridge_version,
            resume_step.

    Raises:
        ConfigError: nothing is asked, or what contradicts itself or is not there.
        ArtifactError: the folder is no artifact, or cannot be read.
    """
    if (source is not None) == (step is not None or pack is not None):
        raise ConfigError("trace needs step or pack, or else source alone, e.g. step=12. Give one of these.")
    if rank is not None and step is None:
        raise ConfigError(f"rank is {rank}; without a step no rank reads anything. Give step, too.")
    traced = TracedRun(opened_artifact(artifact_place(artifact)), stated_options(RunOptions, run, "trace"))
    if source is not None:
        return trace_source(traced, *parse_source(source), limit=limit)
    if step is None:
        assert pack is not None
        return trace_pack(traced, split, pack, limit=limit)
    return trace_step(traced, split, step, rank=rank, pack=pack)


@checked
def explain(rule: str = "BP") -> dict[str, Any] | list[dict[str, Any]]:
    """Return a rule as plain values: why it matters, a bad and a good example, the fix, the evidence.

    Example: `bridgepack.explain("BP101")["why"]`.

    Args:
        rule: a code or a name; for the beginning of a code, e.g. `BP1`, the list of its rules; by default all.

    Raises:
        ConfigError: there is no such rule.
    """
    return explained(rule)
