"""Checks a target: what it is, which rules judge it, and one report of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from bridgepack.bridge.disk_files import DiskFiles
from bridgepack.bridge.from_recipe import recipe_field
from bridgepack.bridge.locations import line_of
from bridgepack.bridge.targets import Target, load_target
from bridgepack.config.loading import parse_overrides
from bridgepack.errors import ConfigError
from bridgepack.records import Change, Finding, RunConfig
from bridgepack.rules.context import CannotJudgeError, CheckContext, context_from_manifest
from bridgepack.rules.registry import ALL_RULES, ARTIFACT_RULES, RUN_RULES
from bridgepack.rules.report import CheckReport, SkippedRule, in_order
from bridgepack.rules.rule import ArtifactFacts, Rule
from bridgepack.rules.run_engine import RunJudgement, judge_run
from bridgepack.rules.run_subject import SPECS, Environment, RunSubject
from bridgepack.rules.selection import check_selectors, selected
from bridgepack.rules.settings import Settings
from bridgepack.rules.suppression import SUPPRESSION_RULES, apply_suppressions
from bridgepack.rules.versions import target_versions

_NO_ARTIFACT = "no artifact was given; add --artifact FOLDER"


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """How a target is checked.

    Attributes:
        artifact: folder of the packs that the run will read.
        world_size: number of GPUs; by default what the settings say.
        bridge_version: version of megatron-bridge to judge for; by default that of the environment, else the target
            of this package.
        environment: the environment of the run; rules on it are skipped without.
        overrides: dotted path -> value.
        select: codes, beginnings of codes or names of the rules to run; all by default.
        ignore: the same, of rules not to run.
        given: facts about an artifact without a manifest, e.g. `{"eos_token_id": 2}`.
        looks_at_files: whether the paths in the settings are looked up on this machine.
        num_workers: most processes for an artifact.
        max_examples: places named per finding.
        progress: told how far the artifact is.
    """

    artifact: Path | None = None
    world_size: int | None = None
    bridge_version: str | None = None
    environment: Environment | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    select: Sequence[str] = ()
    ignore: Sequence[str] = ()
    given: Mapping[str, Any] = field(default_factory=dict)
    looks_at_files: bool = True
    num_workers: int = 1
    max_examples: int = 5
    progress: Any = None


def named_environment(name: str | None) -> Environment | None:
    """Return the environment of `here`, or of a file that lists distributions; None for None.

    Raises:
        ConfigError: the file cannot be read, or lists nothing.
    """
    if name is None:
        return None
    from bridgepack.bridge.installed import environment_from_file, environment_here

    return environment_here() if name == "here" else environment_from_file(Path(name))


def parse_given(items: Sequence[str]) -> dict[str, Any]:
    """Return `name=value` texts as facts about an artifact.

    Raises:
        ConfigError: a name or a value is nothing known.
    """
    given = parse_overrides(tuple(items), option="--given")
    kinds = {item.name: str if item.name == "loss_mode" else int for item in fields(CheckContext)}
    for name, value in given.items():
        if name not in kinds:
            raise ConfigError(f"--given {name}; allowed: {', '.join(kinds)}. Use one of these.")
        if type(value) is not kinds[name]:
            allowed = "a whole number" if kinds[name] is int else "a text"
            raise ConfigError(f"--given {name} is {value!r}; allowed: {allowed}.")
    return given


def check_target(target: Any, options: CheckOptions, *, packs: CheckedArtifact | None = None) -> CheckReport:
    """Return what the rules say about a target.

    Args:
        target: as `bridge.targets.load_target` takes it, or what that gives.
        options: how.
        packs: the artifact, where it has been checked already.

    Raises:
        ConfigError: the target, a version, a selector or an override is nothing known.
        ArtifactError: the artifact is none.
        RuleCrashError: a rule raised.
    """
    check_selectors(ALL_RULES, options.select, "--select")
    check_selectors(ALL_RULES, options.ignore, "--ignore")
    loaded = target if isinstance(target, Target) else load_target(target, options.overrides, artifact=options.artifact)
    packs = packs or checked_artifact(loaded, options)
    if loaded.config is None:
        assert packs is not None
        return replace(_suppressed(packs.report, {}, options), target=loaded.place)
    return _with_run(loaded, loaded.config, packs, options)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedArtifact:
    """An artifact after its own rules.

    Attributes:
        report: what they say.
        facts: what rules on runs see of it.
    """

    report: CheckReport
    facts: ArtifactFacts


def checked_artifact(loaded: Target, options: CheckOptions) -> CheckedArtifact | None:
    """Return the artifact of a check, judged by the rules on artifacts; None where none was given.

    Raises:
        ArtifactError: the folder is no artifact.
        RuleCrashError: a rule raised.
    """
    folder = loaded.artifact or options.artifact
    if folder is None:
        return None
    from bridgepack.data.checking import opened_for_check
    from bridgepack.rules.engine import Execution, report_of_scan, scan_artifact

    rules = selected(ARTIFACT_RULES, select=options.select, ignore=options.ignore)
    with opened_for_check(folder, num_workers=options.num_workers) as artifact:
        scan = scan_artifact(
            artifact,
            context=_context(artifact, loaded.config, options.given),
            rules=rules,
            max_examples=options.max_examples,
            execution=Execution(reader=artifact.parts, run_tasks=artifact.tasks.run, progress=options.progress),
        )
    report = report_of_scan(scan, rules=rules, max_examples=options.max_examples)
    return CheckedArtifact(report=report, facts=scan.facts)


def _context(artifact: Any, config: RunConfig | None, given: Mapping[str, Any]) -> CheckContext:
    """Return what rows are judged against: what is given, else the manifest, else the run, else the files' names."""
    context = context_from_manifest(artifact.manifest) if artifact.manifest is not None else CheckContext()
    known: dict[str, Any] = {}
    if artifact.manifest is None:
        known = {**artifact.name_hints, **(_geometry_of_run(config) if config is not None else {})}
    return replace(context, **{**known, **given})


def _geometry_of_run(config: RunConfig) -> dict[str, int]:
    settings, known = Settings(config=config), {}
    for name in ("packed_sequence_size", "pad_seq_to_mult"):
        try:
            known[name] = settings.integer(f"{SPECS}.{name}")
        except CannotJudgeError:
            continue
    return known


def _with_run(loaded: Target, config: RunConfig, packs: CheckedArtifact | None, options: CheckOptions) -> CheckReport:
    environment = options.environment
    versions = target_versions(options.bridge_version, environment.versions if environment else None)
    subject = RunSubject(
        config=config,
        versions=versions,
        world_size_given=options.world_size,
        artifact=packs.facts if packs else None,
        environment=environment,
        files=DiskFiles() if options.looks_at_files else None,
    )
    rules = selected(RUN_RULES, select=options.select, ignore=options.ignore)
    judged = judge_run(subject, rules, max_examples=options.max_examples)
    report = _joined(judged, packs, options)
    report = _suppressed(report, config.ignored, options)
    findings = tuple(_in_users_terms(finding, loaded) for finding in report.findings)
    return replace(report, findings=in_order(findings), target=loaded.place, versions=versions.described())


def _joined(judged: RunJudgement, packs: CheckedArtifact | None, options: CheckOptions) -> CheckReport:
    if packs is None:
        unread = selected(ARTIFACT_RULES, select=options.select, ignore=options.ignore)
        missing = tuple(SkippedRule(code=rule.code, name=rule.name, reason=_NO_ARTIFACT) for rule in unread)
        base = CheckReport(findings=(), rules_run=(), rules_skipped=missing)
    else:
        base = packs.report
    skipped = (*base.rules_skipped, *judged.rules_skipped)
    return replace(
        base,
        findings=(*base.findings, *judged.findings),
        rules_run=tuple(sorted((*base.rules_run, *judged.rules_run))),
        rules_skipped=tuple(sorted(skipped, key=lambda rule: rule.code)),
        rules_not_applicable=judged.rules_not_applicable,
    )


def _suppressed(report: CheckReport, ignored: Mapping[str, str], options: CheckOptions) -> CheckReport:
    rules = selected(SUPPRESSION_RULES, select=options.select, ignore=options.ignore)
    findings, suppressed = apply_suppressions(
        report.findings,
        ignored,
        known_codes={rule.code for rule in ALL_RULES},
        judged_codes=report.rules_run,
        rules=rules,
    )
    return replace(
        report,
        findings=in_order(findings),
        suppressed=suppressed,
        rules_run=tuple(sorted((*report.rules_run, *_codes(rules)))),
    )


def _codes(rules: Sequence[Rule]) -> list[str]:
    return [rule.code for rule in rules]


def _in_users_terms(finding: Finding, loaded: Target) -> Finding:
    """Return a finding whose paths are those of the user's own file, with the line of the first."""
    assert loaded.config is not None
    config = loaded.config
    paths = [config.user_path(part.strip()) for part in finding.where.split(",")]
    changes = tuple(user_change(change, loaded) for change in finding.changes)
    line = line_of(loaded.file, paths) if loaded.file is not None else None
    file = str(loaded.file) if loaded.file is not None else ""
    return replace(finding, where=", ".join(dict.fromkeys(paths)), changes=changes, file=file, line=line)


def user_change(change: Change, loaded: Target) -> Change:
    """Return a change whose path is that of the user's own file."""
    if loaded.kind != "recipe" or loaded.config is None:
        return change
    return replace(change, path=recipe_field(loaded.config, change.path))
