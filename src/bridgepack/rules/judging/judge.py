"""Runs selected rules on an artifact or on a run."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from bridgepack.config.errors import did_you_mean
from bridgepack.errors import ConfigError
from bridgepack.host import BRIDGE
from bridgepack.records import Finding, InspectableArtifact
from bridgepack.rules.judging.context import CannotJudgeError, CheckContext, context_from_manifest
from bridgepack.rules.judging.facts import ArtifactFacts
from bridgepack.rules.judging.judgement import Judgement, SkippedRule, crash_of, findings_of
from bridgepack.rules.judging.rule import ArtifactRule, Found, RowRule, Rule, RunRule, StructureRule
from bridgepack.rules.judging.scan import Execution, scan_artifact
from bridgepack.rules.judging.subject import Run


def judge_artifact(
    artifact: InspectableArtifact,
    *,
    rules: Sequence[Rule],
    structure: Sequence[StructureRule],
    context: CheckContext | None = None,
    max_examples: int = 5,
    execution: Execution | None = None,
) -> tuple[Judgement, ArtifactFacts]:
    """Return what the rules say of an artifact, and the facts that rules on runs need.

    Args:
        artifact: the artifact to judge.
        rules: the rules to run.
        structure: all structure rules; they remove packs that pack rules cannot handle.
        context: facts that packs are judged against (default: from the manifest). Without a manifest and without
            this, rules that need the facts are skipped.
        max_examples: maximum places listed per finding.
        execution: how to read and run (default: in this process, shard by shard).

    Raises:
        RuleCrashError: a rule raised.
    """
    if context is None:
        context = CheckContext() if artifact.manifest is None else context_from_manifest(artifact.manifest)
    to_scan = (*rules, *(rule for rule in structure if rule not in rules))
    execution = execution or Execution()
    scan = scan_artifact(artifact, rules=to_scan, context=context, max_examples=max_examples, execution=execution)
    facts = scan.facts(artifact, context)
    findings, reasons = scan.findings(rules), dict(scan.reasons)
    for rule in rules:
        if isinstance(rule, StructureRule) and not scan.num_rows:
            reasons.setdefault(rule.code, "no pack could be read")
        if isinstance(rule, RowRule) and not scan.num_sound_rows:
            reasons.setdefault(rule.code, "no valid pack could be read")
        if isinstance(rule, ArtifactRule):
            findings += _judge(rule, partial(rule.check, facts), "the artifact", max_examples, reasons)
    judgement = Judgement(
        findings=tuple(findings),
        rules_run=tuple(sorted(rule.code for rule in rules if rule.code not in reasons)),
        rules_skipped=_skipped_rules(rules, reasons),
    )
    return judgement, facts


def judge_run(run: Run, rules: Sequence[RunRule], *, max_examples: int = 5) -> Judgement:
    """Return what the rules say of a run, in the order of the rules.

    Raises:
        RuleCrashError: a rule raised.
    """
    why_unknown = run.versions.why_unknown  # then nobody knows on which side of a version it is
    reasons = {rule.code: why_unknown for rule in rules if why_unknown is not None and BRIDGE in rule.versions}
    applies = {rule.code: rule.code in reasons or run.versions.are_in(rule.versions) for rule in rules}
    applicable = [rule for rule in rules if applies[rule.code]]
    findings: list[Finding] = []
    for rule in applicable:
        if rule.code not in reasons:
            findings += _judge(rule, partial(rule.violations, run), run.config.place, max_examples, reasons)
    return Judgement(
        findings=tuple(findings),
        rules_run=tuple(rule.code for rule in applicable if rule.code not in reasons),
        rules_skipped=_skipped_rules(applicable, reasons),
        rules_not_applicable=tuple(code for code, is_applicable in applies.items() if not is_applicable),
    )


def _judge(
    rule: Rule, check: Callable[[], Found], place: str, max_examples: int, reasons: dict[str, str]
) -> list[Finding]:
    """Return a rule's findings; if a fact is missing, add the reason to `reasons`."""
    try:
        return findings_of(rule, check(), max_examples=max_examples)
    except CannotJudgeError as reason:
        reasons[rule.code] = reason.text
        return []
    except Exception as error:  # any exception of a rule is that rule's crash
        raise crash_of(rule, place, error) from error


def _skipped_rules(rules: Sequence[Rule], reasons: Mapping[str, str]) -> tuple[SkippedRule, ...]:
    without_facts = sorted((rule for rule in rules if rule.code in reasons), key=lambda rule: rule.code)
    return tuple(SkippedRule(code=rule.code, name=rule.name, reason=reasons[rule.code]) for rule in without_facts)


def without_doubles(findings: Sequence[Finding], rules: Sequence[RunRule]) -> tuple[Finding, ...]:
    """Return the findings, without those that a rule on runs reports in more detail."""
    codes = {finding.code for finding in findings}
    doubles = {rule.instead_of for rule in rules if rule.code in codes}
    return tuple(finding for finding in findings if finding.code not in doubles)


def select_rules[R: Rule](rules: Sequence[R], *, select: Sequence[str], ignore: Sequence[str]) -> tuple[R, ...]:
    """Return the rules that are selected (default: all) and not ignored; the longer selector wins, as in ruff.

    A selector is a code, its beginning or a name, in upper or lower case: `BP101`, `BP3`, `micro-batch-size-not-one`.
    """
    if not select and not ignore:
        return tuple(rules)
    return tuple(rule for rule in rules if _strength(rule, select or ("BP",)) > _strength(rule, ignore))


def check_selectors(rules: Sequence[Rule], selectors: Sequence[str], option: str) -> None:
    """Check that every selector matches at least one rule.

    Raises:
        ConfigError: a selector matches no rule.
    """
    for selector in selectors:
        if not any(_matches(rule, selector) for rule in rules):
            names = [name for rule in rules for name in (rule.code, rule.name)]
            hint = did_you_mean(selector, names, "`bridgepack explain` lists them.")
            raise ConfigError(
                f"{option} is {selector!r}, which matches no rule. Allowed: a code such as BP101, its beginning such "
                f"as BP1, or a name. {hint}"
            )


def _strength(rule: Rule, selectors: Sequence[str]) -> int:
    return max((len(selector) for selector in selectors if _matches(rule, selector)), default=0)


def _matches(rule: Rule, selector: str) -> bool:
    beginning = selector.upper()
    return (beginning.startswith("BP") and rule.code.startswith(beginning)) or selector.lower() == rule.name
