"""The one question of every command: does the host refuse a recipe, in which words, and at which field?"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.records import Finding, RunConfig
from bridgepack.rules.judging.environment import target_versions
from bridgepack.rules.judging.judge import judge_run
from bridgepack.rules.judging.rule import RunRule, Severity
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.registry import RUN_RULES

#: Rules on what `to_bridge` refuses: models and overrides, then topologies that the host reports late or not clearly.
OF_RECIPE = frozenset({"BP043", "BP044", "BP850", "BP851", "BP852", "BP853"})
OF_TOPOLOGY = frozenset({"BP820", "BP821", "BP825", "BP827"})
#: A dotted path of a setting in a text.
_PATH = re.compile(r"\b[a-z_]+(?:\.[a-z_0-9]+)+\b")


def refusals_of(recipe: SFTRecipe) -> tuple[Finding, ...]:
    """Return what `to_bridge` refuses of a recipe for its host, in the recipe's own fields; no host is needed.

    Raises:
        ConfigError: `bridge_overrides` nest too deep, or changes of rules contradict each other.
    """
    config = config_of_recipe(recipe)
    rules = [rule for rule in RUN_RULES if rule.code in OF_RECIPE | OF_TOPOLOGY]
    return tuple(in_users_words(finding, config) for finding in _findings(config, rules))


def errors_of(recipe: SFTRecipe) -> tuple[Finding, ...]:
    """Return the errors that `check` finds in a recipe without files and packs, in the recipe's own fields."""
    config = config_of_recipe(recipe)
    findings = _findings(config, [rule for rule in RUN_RULES if rule.severity is Severity.ERROR])
    return tuple(in_users_words(finding, config) for finding in findings if finding.code not in config.ignored)


def _findings(config: RunConfig, rules: Sequence[RunRule]) -> tuple[Finding, ...]:
    return judge_run(Run(config=config, versions=target_versions(config.bridge_version)), rules).findings


def in_users_words(finding: Finding, config: RunConfig) -> Finding:
    """Return a finding whose place and texts have the paths of the user's own file."""
    texts: Any = {name: in_users_paths(getattr(finding, name), config) for name in ("found", "allowed", "why", "fix")}
    return replace(finding, where=config.user_path(finding.where), **texts)


def in_users_paths(text: str, config: RunConfig | None) -> str:
    """Return a text with the paths of the user's own file."""
    return text if config is None else _PATH.sub(lambda match: config.user_path(match[0]), text)


def refusal_text(finding: Finding) -> str:
    """Return a refusal as one sentence or two, with the words of the finding."""
    return f"{finding.where} is {finding.found}; allowed: {finding.allowed} ({finding.code}). {finding.fix}"
