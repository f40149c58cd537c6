"""Checks a target: loads it, selects the rules, and returns one report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bridgepack.bridge.locations import line_of
from bridgepack.bridge.plain import value_at
from bridgepack.bridge.recipe import recipe_field
from bridgepack.bridge.refusing.recipes import refuse_packs_unread
from bridgepack.bridge.refusing.refusals import in_users_paths
from bridgepack.bridge.targets import Target, load_target
from bridgepack.checking.options import CheckOptions as CheckOptions
from bridgepack.checking.options import given_arguments
from bridgepack.checking.real import with_each_fault_once, with_verdict
from bridgepack.checking.run import release_of_rows, run_of
from bridgepack.checking.template_variables import check_template_variables
from bridgepack.checking.upgrade import upgrade_of
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ArtifactError, ConfigError
from bridgepack.host import BRIDGE
from bridgepack.records import Change, Finding, RunConfig, Upgrade
from bridgepack.rules.judging.context import NO_PACKS, CannotJudgeError, CheckContext, context_from_manifest
from bridgepack.rules.judging.facts import ArtifactFacts
from bridgepack.rules.judging.judge import check_selectors, judge_artifact, judge_run, without_doubles
from bridgepack.rules.judging.report import CheckReport, SkippedRule, in_order, skip_rules
from bridgepack.rules.judging.settings import Settings
from bridgepack.rules.judging.subject import SPECS, Run
from bridgepack.rules.registry import (
    ALL_RULES,
    ARTIFACT_RULES,
    GUARD_RULES,
    RETIRED,
    RUN_RULES,
    STRUCTURE_RULES,
    SUPPRESSION_RULES,
)
from bridgepack.rules.suppression import Suppressions, apply_suppressions

_SUPPRESSION_CODES = {rule.code for rule in SUPPRESSION_RULES}
_WHILE_TRAINING = "it judges a run while it trains, see docs/guard.md"
_NO_SETTINGS = "no settings were given; check a recipe or a config with --artifact"


def check_target(target: Any, options: CheckOptions, *, packs: CheckedArtifact | None = None) -> CheckReport:
    """Return the report of the rules on a target.

    Args:
        target: argument or result of `bridge.targets.load_target`; a result has the overrides and packs already.
        options: options of the check.
        packs: the artifact, if it has already been checked.

    Raises:
        ConfigError: the target, a version, a selector or an override is unknown, or options contradict each other.
        ArtifactError: the artifact cannot be read.
        RuleCrashError: a rule raised.
    """
    check_selectors(ALL_RULES, options.select, "--select")
    check_selectors(ALL_RULES, options.ignore, "--ignore")
    loaded = loaded_target(target, options)
    _check_agreement(loaded, options)
    unknown_variables = check_template_variables(loaded.recipe)
    packs = packs or checked_artifact(loaded, options)
    if packs is None:
        on_packs = CheckReport(rules_skipped=skip_rules(options.select_rules(ARTIFACT_RULES), NO_PACKS))
    else:
        on_packs = packs.report
    run = None if loaded.config is None else run_of(loaded, packs.facts if packs else None, options)
    if run is None:
        on_run = CheckReport(rules_skipped=skip_rules(options.select_rules(RUN_RULES), _NO_SETTINGS))
    else:
        on_run = judge_run(run, options.select_rules(RUN_RULES), max_examples=options.max_examples)
        on_run = replace(on_run, versions=run.versions.describe(), note=run.versions.note)
        on_run = replace(on_run, upgrade=_upgrade(run, on_run, loaded, packs, options))
        loaded = replace(loaded, config=run.config)
    version = None if run is None else run.versions[BRIDGE]
    report = with_verdict(_join_reports(on_packs, on_run, options), loaded, options, version)
    report = with_each_fault_once(_apply_suppressions(report, loaded.config, options))
    skipped_rules = (replace(rule, reason=in_users_paths(rule.reason, loaded.config)) for rule in report.rules_skipped)
    report = replace(report, rules_skipped=tuple(skipped_rules))
    return replace(
        report,
        note="\n".join(filter(None, (report.note, unknown_variables))),
        findings=in_order(_in_users_terms(finding, loaded) for finding in report.findings),
        upgrade=_upgrade_in_users_terms(report.upgrade, loaded),
        unjudged=_unjudged_rules(report, options.select),
        target=loaded.place,
        target_path=str(loaded.file or loaded.artifact or ""),
    )


def loaded_target(target: Any, options: CheckOptions) -> Target:
    """Return the target of a check, which is loaded unless it has been.

    Raises:
        ConfigError: as `bridge.targets.load_target`.
    """
    return target if isinstance(target, Target) else load_target(target, options.overrides, artifact=options.artifact)


def _unjudged_rules(report: CheckReport, select: Sequence[str]) -> tuple[SkippedRule, ...]:
    """Return the skipped rules that were selected by their code or name, or all selected rules if none ran."""
    if not select or not report.rules_skipped:
        return ()
    named = {selector.lower() for selector in select}
    own = tuple(rule for rule in report.rules_skipped if {rule.code.lower(), rule.name} & named)
    return own if own or set(report.rules_run) - _SUPPRESSION_CODES else report.rules_skipped


def _check_agreement(loaded: Target, options: CheckOptions) -> None:
    """Check that at least one rule is selected, and that every option has an effect on this target.

    Raises:
        ConfigError: no rule is left, or an option has no effect.
    """
    if not options.select_rules(ALL_RULES):
        raise ConfigError(f"--ignore {', '.join(options.ignore)} leaves no selected rule to run. Ignore fewer rules.")
    if loaded.artifact is not None and options.artifact is not None:
        raise ConfigError(
            f"--artifact is {str(options.artifact)!r}, and the target {loaded.place!r} is an artifact itself. "
            "Remove --artifact, or give a recipe or a config as target."
        )
    refuse_packs_unread(loaded.recipe, options.artifact, config=loaded.config)
    for name in ("world_size", "bridge_version", "environment"):
        if loaded.config is None and getattr(options, name) is not None:
            raise ConfigError(
                f"--{name.replace('_', '-')} describes a run, and {loaded.place!r} is only an artifact. Remove it, or "
                f"check the recipe with --artifact {loaded.place}."
            )
    if options.given and loaded.artifact is None and options.artifact is None:
        raise ConfigError(
            f"--given {next(iter(options.given))} describes packs, but none were given. Add --artifact FOLDER."
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedArtifact:
    """An artifact judged by the rules on artifacts."""

    report: CheckReport  #: their report
    facts: ArtifactFacts  #: facts for the rules on runs
    geometry: Mapping[str, int] | None  #: geometry of the run that its rows were judged by; None if the manifest has it


def checked_artifact(loaded: Target, options: CheckOptions) -> CheckedArtifact | None:
    """Return the artifact of a check, judged by the rules on artifacts, or None if none was given.

    Raises:
        ArtifactError: the folder is not an artifact, or cannot be read.
        RuleCrashError: a rule raised.
    """
    folder = loaded.artifact or options.artifact
    if folder is None:
        return None
    try:
        return _check_folder(folder, loaded, options)
    except OSError as error:
        raise ArtifactError(f"{str(folder)!r} cannot be read: {error}. Check the file permissions.") from error


def is_judged_for(packs: CheckedArtifact, loaded: Target) -> bool:
    """Return whether an artifact was judged by the geometry of this target's run."""
    return packs.geometry is None or packs.geometry == _geometry_of_run(loaded.config)


def _check_folder(folder: Path, loaded: Target, options: CheckOptions) -> CheckedArtifact:
    from bridgepack.data.artifact.checking import opened_for_check
    from bridgepack.rules.judging.scan import Execution

    opened = opened_for_check(folder, num_workers=options.num_workers, may_lack_manifest=bool(options.given))
    with opened as artifact:
        geometry = _geometry_of_run(loaded.config) if artifact.manifest is None else None
        report, facts = judge_artifact(
            artifact,
            context=replace(
                _context(artifact, geometry or {}, given_arguments(options.given)),
                release=release_of_rows(loaded, artifact.manifest, options),
            ),
            rules=options.select_rules(ARTIFACT_RULES),
            structure=STRUCTURE_RULES,
            max_examples=options.max_examples,
            execution=Execution(run_tasks=artifact.tasks.run, progress=options.progress),
        )
    return CheckedArtifact(report=report, facts=facts, geometry=geometry)


def _context(artifact: Any, geometry: Mapping[str, int], given: Mapping[str, Any]) -> CheckContext:
    if artifact.manifest is not None:
        return replace(context_from_manifest(artifact.manifest), **given)
    return replace(CheckContext(), **{**artifact.name_hints, **geometry, **given})


def _geometry_of_run(config: RunConfig | None) -> dict[str, int]:
    if config is None:
        return {}
    settings, known = Settings(config=config), {}
    for name in ("packed_sequence_size", "pad_seq_to_mult"):
        try:
            known[name] = settings.integer(f"{SPECS}.{name}")
        except CannotJudgeError:
            continue
    return known


def _upgrade(
    run: Run, report: CheckReport, loaded: Target, packs: CheckedArtifact | None, options: CheckOptions
) -> Upgrade | None:
    """Return what the version that was asked for changes for a run, or None if it is of the run's own release."""
    if options.bridge_version is None:
        return None
    own = replace(options, bridge_version=None)
    before = run_of(loaded, packs.facts if packs else None, own, waiting=run.waiting)
    judged = replace(loaded, config=run.config)
    return upgrade_of(
        before, run, report, options.select_rules(RUN_RULES), told=lambda finding: _in_users_terms(finding, judged)
    )


def _join_reports(on_packs: CheckReport, on_run: CheckReport, options: CheckOptions) -> CheckReport:
    unasked = skip_rules(options.select_rules(GUARD_RULES), _WHILE_TRAINING) if options.select else ()
    all_skipped = (*on_packs.rules_skipped, *on_run.rules_skipped, *unasked)
    return replace(
        on_packs,
        findings=without_doubles((*on_packs.findings, *on_run.findings), RUN_RULES),
        rules_run=(*on_packs.rules_run, *on_run.rules_run),
        rules_skipped=tuple(sorted(all_skipped, key=lambda rule: rule.code)),
        rules_not_applicable=on_run.rules_not_applicable,
        versions=on_run.versions,
        note=on_run.note,
        upgrade=on_run.upgrade,
    )


def _apply_suppressions(report: CheckReport, config: RunConfig | None, options: CheckOptions) -> CheckReport:
    rules = options.select_rules(SUPPRESSION_RULES)
    subject = Suppressions(
        ignored=config.ignored if config else {},
        known_codes={rule.code for rule in ALL_RULES},
        retired_codes=RETIRED,
        judged_codes=report.rules_run,
        found_codes={finding.code for finding in report.findings},
    )
    findings, suppressed = apply_suppressions(report.findings, subject, rules)
    rules_run = tuple(sorted((*report.rules_run, *(rule.code for rule in rules))))
    return replace(report, findings=findings, suppressed=suppressed, rules_run=rules_run)


def _in_users_terms(finding: Finding, loaded: Target) -> Finding:
    """Return a finding with the paths of the user's own file, and the line of the first path.

    A finding that is not on a setting, e.g. on a shard or a distribution, has no file.
    """
    config = loaded.config
    if config is None:
        return finding
    paths = [_user_name(part.strip(), loaded, config) for part in finding.where.split(",")]
    user_path = recipe_field if loaded.kind == "recipe" else RunConfig.user_path
    changes = tuple(replace(change, path=user_path(config, change.path)) for change in finding.changes)
    if loaded.recipe is not None:
        changes = tuple(_with_what_belongs_to_them(changes, loaded.recipe))
    names = ("found", "allowed", "why", "fix")
    texts: Any = {name: in_users_paths(getattr(finding, name), config) for name in names}
    finding = replace(
        finding,
        where=", ".join(dict.fromkeys(paths)),
        examples=tuple(_user_name(place, loaded, config) for place in finding.examples),
        **texts,
        changes=changes,
    )
    sections = {*config.values, *(SFTRecipe.model_fields if loaded.kind == "recipe" else ())}
    if loaded.file is None or paths[0].partition(".")[0] not in sections:
        return finding
    return replace(finding, file=str(loaded.file), line=line_of(loaded.file, paths))


def _upgrade_in_users_terms(upgrade: Upgrade | None, loaded: Target) -> Upgrade | None:
    """Return an upgrade with the paths of the user's own file, without findings that the user ignores."""
    config = loaded.config
    if upgrade is None or config is None:
        return upgrade

    changes = (change for change in upgrade.changes if change.what.partition(" ")[0] not in config.ignored)
    return replace(
        upgrade,
        changes=tuple(
            replace(change, what=_user_name(change.what, loaded, config))
            if change.kind in ("renamed", "value")
            else change
            for change in changes
        ),
    )


def _user_name(path: str, loaded: Target, config: RunConfig) -> str:
    holder, _, name = path.rpartition(".")
    section = value_at(config.values, holder)
    is_inherited = path not in config.user_paths and isinstance(section, Mapping) and name in section
    is_of_base = loaded.kind == "recipe" and is_inherited and not path.startswith("dataset.")
    return recipe_field(config, path) if is_of_base else config.user_path(path)


def _with_what_belongs_to_them(changes: Sequence[Change], recipe: SFTRecipe) -> Iterator[Change]:
    """Yield the changes of a recipe, with changes of related fields without which the recipe would be invalid."""
    for change in changes:
        yield change
        if change.path == "cuda_graphs.implementation" and recipe.cuda_graphs.modules:
            yield replace(change, path="cuda_graphs.modules", value=[], why="nothing is captured")
        longest = recipe.packing.max_sequence_length
        if change.path == "packing.packed_sequence_size" and longest is not None and longest > change.value:
            yield replace(change, path="packing.max_sequence_length", why="a sequence fits in packed_sequence_size")
