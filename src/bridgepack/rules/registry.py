"""All rules, collected from the modules of this package: whatever a decorator made is one."""

import pkgutil
from collections.abc import Iterable
from importlib import import_module

from bridgepack.rules.engine.rule import ArtifactRule, RowRule, Rule, RunRule, StructureRule
from bridgepack.rules.suppression import SuppressionRule
from bridgepack.rules.training import ResumeRule, StepRule


def rules_in(module_names: Iterable[str]) -> tuple[Rule, ...]:
    """Return the rules of some modules by code; one that another module imports counts once."""
    values = [value for name in module_names for value in vars(import_module(name)).values()]
    found = {id(value): value for value in values if isinstance(value, Rule)}
    return tuple(sorted(found.values(), key=lambda rule: rule.code))


_ROOM = "bridgepack.rules"
#: Every rule, by code.
ALL_RULES = rules_in(info.name for info in pkgutil.walk_packages(import_module(_ROOM).__path__, f"{_ROOM}."))
#: Every rule that says which rows the others can judge.
STRUCTURE_RULES = tuple(rule for rule in ALL_RULES if isinstance(rule, StructureRule))
#: Every rule on an artifact.
ARTIFACT_RULES = tuple(rule for rule in ALL_RULES if isinstance(rule, (StructureRule, RowRule, ArtifactRule)))
#: Every rule on a run.
RUN_RULES = tuple(rule for rule in ALL_RULES if isinstance(rule, RunRule))
#: Every rule on a run while it trains; no check runs them.
STEP_RULES = tuple(rule for rule in ALL_RULES if isinstance(rule, StepRule))
#: Every rule on a run that goes on from a checkpoint; no check runs them.
RESUME_RULES = tuple(rule for rule in ALL_RULES if isinstance(rule, ResumeRule))
GUARD_RULES = (*STEP_RULES, *RESUME_RULES)
#: Every rule on what a user ignores.
SUPPRESSION_RULES = tuple(rule for rule in ALL_RULES if isinstance(rule, SuppressionRule))


def find_rule(code: str) -> Rule | None:
    """Return the rule of that code, or None."""
    return next((rule for rule in ALL_RULES if rule.code == code), None)
