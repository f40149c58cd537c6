"""Checks a target in six steps, each a module: load, settings, facts, judge, the host's verdict, words; one report."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from typing import Any

from bridgepack.checking.facts import with_facts
from bridgepack.checking.judging import on_packs, on_run, on_training, suppress
from bridgepack.checking.loading import load
from bridgepack.checking.options import CheckOptions as CheckOptions
from bridgepack.checking.packs import CheckedPacks, check_packs
from bridgepack.checking.real import each_fault_once, judge_verdict, verdict_on
from bridgepack.checking.settings import settings_of
from bridgepack.checking.template_variables import check_template_variables
from bridgepack.checking.upgrade import upgrade_on
from bridgepack.checking.words import UserTerms
from bridgepack.rules.judging.judge import without_doubles
from bridgepack.rules.judging.judgement import SkippedRule, join_judgements
from bridgepack.rules.judging.report import CheckReport, in_order
from bridgepack.rules.registry import RUN_RULES, SUPPRESSION_RULES

_SUPPRESSION_CODES = {rule.code for rule in SUPPRESSION_RULES}


def check_target(target: Any, options: CheckOptions, *, packs: CheckedPacks | None = None) -> CheckReport:
    """Return the report of the rules on a target.

    Args:
        target: argument or result of `bridge.targets.load_target`; a result has the overrides and packs already.
        options: options of the check.
        packs: the packs, if they have already been checked.

    Raises:
        ConfigError: the target, a version, a selector or an override is unknown, or options contradict each other.
        ArtifactError: the artifact cannot be read.
        RuleCrashError: a rule raised.
    """
    target = load(target, options)
    note = check_template_variables(target.recipe)

    run = settings_of(target, options)

    packs = packs or check_packs(target, run, options)
    run = None if run is None else with_facts(run, target, None if packs is None else packs.facts, options)

    run_judgement = on_run(run, options)
    judgements = [on_packs(packs, options), run_judgement, on_training(options)]

    verdict = verdict_on(target, run, options)
    judgement, suppressions = suppress(join_judgements((*judgements, judge_verdict(verdict, options))), run, options)

    terms = UserTerms(target=target, config=None if run is None else run.config)
    findings = each_fault_once(without_doubles(judgement.findings, RUN_RULES), verdict)
    rules_skipped = tuple(replace(rule, reason=terms.of_text(rule.reason)) for rule in judgement.rules_skipped)
    return CheckReport(
        findings=in_order(map(terms.of_finding, findings)),
        rules_run=judgement.rules_run,
        rules_skipped=rules_skipped,
        rules_not_applicable=judgement.rules_not_applicable,
        suppressed=suppressions,
        unjudged=_unjudged_rules(judgement.rules_run, rules_skipped, options.select),
        host=verdict,
        versions="" if run is None else run.versions.describe(),
        note="\n".join(filter(None, ("" if run is None else run.versions.note, note))),
        upgrade=None if run is None else upgrade_on(run, run_judgement, terms, options),
        target=target.place,
        target_path=str(target.file or target.artifact or ""),
        **({} if packs is None else asdict(packs.facts.counts)),
    )


def _unjudged_rules(
    rules_run: Collection[str], rules_skipped: tuple[SkippedRule, ...], select: Sequence[str]
) -> tuple[SkippedRule, ...]:
    """Return the skipped rules that were selected by their code or name, or all selected rules if none ran."""
    if not select or not rules_skipped:
        return ()
    names = {selector.lower() for selector in select}
    by_name = tuple(rule for rule in rules_skipped if {rule.code.lower(), rule.name} & names)
    return by_name if by_name or set(rules_run) - _SUPPRESSION_CODES else rules_skipped
