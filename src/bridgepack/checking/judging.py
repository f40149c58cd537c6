"""Step 4 of a check, judge: the rules on packs, on the run, and on what the user ignores."""

from dataclasses import replace

from bridgepack.checking.options import CheckOptions
from bridgepack.checking.packs import CheckedPacks
from bridgepack.rules.judging.context import NO_PACKS
from bridgepack.rules.judging.judge import judge_run
from bridgepack.rules.judging.judgement import Judgement, join_judgements, skip_rules
from bridgepack.rules.judging.report import Suppressed
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.registry import ALL_RULES, ARTIFACT_RULES, GUARD_RULES, RETIRED, RUN_RULES, SUPPRESSION_RULES
from bridgepack.rules.suppression import Suppressions, apply_suppressions

_WHILE_TRAINING = "it judges a run while it trains, see docs/trace.md"
_NO_SETTINGS = "no settings were given; check a recipe or a config with --artifact"


def on_packs(packs: CheckedPacks | None, options: CheckOptions) -> Judgement:
    """Return what the rules on artifacts say."""
    return skip_rules(options.select_rules(ARTIFACT_RULES), NO_PACKS) if packs is None else packs.judgement


def on_run(run: Run | None, options: CheckOptions) -> Judgement:
    """Return what the rules on runs say.

    Raises:
        RuleCrashError: a rule raised.
    """
    rules = options.select_rules(RUN_RULES)
    return skip_rules(rules, _NO_SETTINGS) if run is None else judge_run(run, rules, max_examples=options.max_examples)


def on_training(options: CheckOptions) -> Judgement:
    """Return the rules that only a training run can be judged by as skipped, where the user selects rules."""
    return skip_rules(options.select_rules(GUARD_RULES), _WHILE_TRAINING) if options.select else Judgement()


def suppress(judgement: Judgement, run: Run | None, options: CheckOptions) -> tuple[Judgement, tuple[Suppressed, ...]]:
    """Return the judgement without the findings that the user ignores with a reason, and these findings.

    What is wrong with the user's `ignore` is among the findings that stay.
    """
    rules = options.select_rules(SUPPRESSION_RULES)
    subject = Suppressions(
        user_reasons={} if run is None else run.config.ignored,
        known_codes={rule.code for rule in ALL_RULES},
        retired_codes=RETIRED,
        judged_codes=judgement.rules_run,
        found_codes={finding.code for finding in judgement.findings},
    )
    findings, suppressions = apply_suppressions(judgement.findings, subject, rules)
    of_rules = Judgement(rules_run=tuple(rule.code for rule in rules))
    return replace(join_judgements((judgement, of_rules)), findings=findings), suppressions
