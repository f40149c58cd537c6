"""All rules, collected from the modules of this package: every object that a rule decorator made."""

import pkgutil
from collections.abc import Iterable
from importlib import import_module

from bridgepack.rules.engine.rule import ArtifactRule, RowRule, Rule, RunRule, StructureRule
from bridgepack.rules.suppression import SuppressionRule
from bridgepack.rules.training import ResumeRule, StepRule


def rules_in(module_names: Iterable[str]) -> tuple[Rule, ...]:
    """Return the rules of some modules, sorted by code; a rule imported by another module counts once."""
    values = [value for name in module_names for value in vars(import_module(name)).values()]
    found = {id(value): value for value in values if isinstance(value, Rule)}
    return tuple(sorted(found.values(), key=lambda rule: rule.code))


_ROOM = "bridgepack.rules"
#: Every rule, by code.
ALL_RULES = rules_in(info.name for info in pkgutil.walk_packages(import_module(_ROOM).__path__, f"{_ROOM}."))
#: Every rule that decides which rows the other rules can judge.
STRUCTURE_RULES = tuple(rule for rule in ALL_RULES if isinstance(rule, StructureRule))
#: Every rule on an artifact.
ARTIFACT_RULES = tuple(rule for rule in ALL_RULES if isinstance(rule, (StructureRule, RowRule, ArtifactRule)))
#: Every rule on a run.
RUN_RULES = tuple(rule for rule in ALL_RULES if isinstance(rule, RunRule))
#: Every rule on a training step; the guard runs them, not `check`.
STEP_RULES = tuple(rule for rule in ALL_RULES if isinstance(rule, StepRule))
#: Every rule on a run that resumes from a checkpoint; the guard runs them, not `check`.
RESUME_RULES = tuple(rule for rule in ALL_RULES if isinstance(rule, ResumeRule))
GUARD_RULES = (*STEP_RULES, *RESUME_RULES)
#: Every rule on the user's suppressions.
SUPPRESSION_RULES = tuple(rule for rule in ALL_RULES if isinstance(rule, SuppressionRule))
