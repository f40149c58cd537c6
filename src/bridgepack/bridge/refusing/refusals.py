"""The one question of every command: does the host refuse a recipe, in which words, and at which field?"""

from collections.abc import Collection, Sequence

from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.records import Finding, RunConfig
from bridgepack.rules.judging.environment import target_versions
from bridgepack.rules.judging.judge import judge_run
from bridgepack.rules.judging.rule import RunRule, Severity
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.registry import RUN_RULES

#: Rules on what `to_bridge` refuses: models and overrides, then topologies that the host reports late or not clearly.
OF_RECIPE = frozenset({"BP043", "BP044", "BP850", "BP851", "BP852", "BP853"})
OF_TOPOLOGY = frozenset({"BP820", "BP821", "BP825", "BP827"})
REFUSED = OF_RECIPE | OF_TOPOLOGY


def refusals_of(recipe: SFTRecipe, codes: Collection[str] = REFUSED) -> tuple[Finding, ...]:
    """Return what `to_bridge` refuses of a recipe for its host, in the recipe's own fields; no host is needed.

    Args:
        recipe: the recipe.
        codes: rules that are asked.

    Raises:
        ConfigError: `bridge_overrides` nest too deep, or changes of rules contradict each other.
    """
    return _findings(config_of_recipe(recipe), [rule for rule in RUN_RULES if rule.code in codes])


def errors_of(recipe: SFTRecipe) -> tuple[Finding, ...]:
    """Return the errors that `check` finds in a recipe without files and packs, in the recipe's own fields."""
    config = config_of_recipe(recipe)
    findings = _findings(config, [rule for rule in RUN_RULES if rule.severity is Severity.ERROR])
    return tuple(finding for finding in findings if finding.code not in config.ignored)


def _findings(config: RunConfig, rules: Sequence[RunRule]) -> tuple[Finding, ...]:
    judgement = judge_run(Run(config=config, versions=target_versions(config.bridge_version)), rules)
    return tuple(finding.with_user_paths(config.user_path) for finding in judgement.findings)


def refusal_text(finding: Finding) -> str:
    """Return a refusal as one sentence or two, with the words of the finding."""
    return f"{finding.where} is {finding.found}; allowed: {finding.allowed} ({finding.code}). {finding.fix}"


def error_of(finding: Finding) -> ConfigError:
    """Return the error of a refusal, with the field and the code of the finding."""
    return ConfigError(refusal_text(finding), field=finding.where, code=finding.code)
