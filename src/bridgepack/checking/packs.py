"""Step 3 of a check, facts about packs: their rows are read once, and judged by the rules on artifacts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bridgepack.bridge.targets import Target
from bridgepack.checking.options import CheckOptions, given_arguments
from bridgepack.checking.settings import versions_of
from bridgepack.errors import ArtifactError
from bridgepack.host import HostRelease
from bridgepack.records import Manifest
from bridgepack.rules.judging.context import CannotJudgeError, CheckContext, context_from_manifest
from bridgepack.rules.judging.facts import ArtifactFacts
from bridgepack.rules.judging.judge import judge_artifact
from bridgepack.rules.judging.judgement import Judgement
from bridgepack.rules.judging.settings import Settings
from bridgepack.rules.judging.subject import SPECS, Run
from bridgepack.rules.registry import ARTIFACT_RULES, STRUCTURE_RULES


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedPacks:
    """Packs judged by the rules on artifacts."""

    judgement: Judgement
    facts: ArtifactFacts  #: for the rules on runs
    geometry: Mapping[str, int] | None  #: of the run, if its rows were judged by it; None if the manifest has it

    def are_judged_for(self, run: Run | None) -> bool:
        """Return whether the rows were judged by the geometry of this run."""
        return self.geometry is None or self.geometry == _geometry_of(run)


def check_packs(target: Target, run: Run | None, options: CheckOptions) -> CheckedPacks | None:
    """Return the packs of a check, judged by the rules on artifacts, or None if none were given.

    Args:
        target: the target.
        run: its settings, for packs without a manifest, and for their release.
        options: options of the check.

    Raises:
        ArtifactError: the folder is not an artifact, or cannot be read.
        RuleCrashError: a rule raised.
    """
    folder = target.artifact or options.artifact
    if folder is None:
        return None
    try:
        return _check_folder(folder, run, options)
    except OSError as error:
        raise ArtifactError(f"{str(folder)!r} cannot be read: {error}. Check the file permissions.") from error


def _check_folder(folder: Path, run: Run | None, options: CheckOptions) -> CheckedPacks:
    from bridgepack.data.artifact.checking import opened_for_check
    from bridgepack.rules.judging.scan import Execution

    packs = opened_for_check(folder, num_workers=options.num_workers, may_lack_manifest=bool(options.given))
    with packs as artifact:
        geometry = _geometry_of(run) if artifact.manifest is None else None
        context = _context(artifact, geometry or {}, given_arguments(options.given))
        judgement, facts = judge_artifact(
            artifact,
            context=replace(context, release=_release_of_rows(run, artifact.manifest, options)),
            rules=options.select_rules(ARTIFACT_RULES),
            structure=STRUCTURE_RULES,
            max_examples=options.max_examples,
            execution=Execution(run_tasks=artifact.tasks.run, progress=options.progress),
        )
    return CheckedPacks(judgement=judgement, facts=facts, geometry=geometry)


def _context(artifact: Any, geometry: Mapping[str, int], arguments: Mapping[str, Any]) -> CheckContext:
    if artifact.manifest is not None:
        return replace(context_from_manifest(artifact.manifest), **arguments)
    return replace(CheckContext(), **{**artifact.name_hints, **geometry, **arguments})


def _geometry_of(run: Run | None) -> dict[str, int]:
    if run is None:
        return {}
    settings, geometry = Settings(config=run.config), {}
    for name in ("packed_sequence_size", "pad_seq_to_mult"):
        try:
            geometry[name] = settings.integer(f"{SPECS}.{name}")
        except CannotJudgeError:
            continue
    return geometry


def _release_of_rows(run: Run | None, manifest: Manifest | None, options: CheckOptions) -> HostRelease:
    """Return the release that reads the rows: of the run, or of the artifact's own recipe where there is no run."""
    if run is not None:
        return run.versions.release
    return versions_of(options, None, None if manifest is None else manifest.recipe.get("bridge_version")).release
