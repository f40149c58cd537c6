"""All rules, collected from the modules of this package: every object that a rule decorator made; and their groups."""

import pkgutil
from collections.abc import Iterable
from importlib import import_module

from bridgepack.rules.host_itself import HostRule
from bridgepack.rules.judging.rule import ArtifactRule, RowRule, Rule, RunRule, Severity, StructureRule
from bridgepack.rules.suppression import SuppressionRule
from bridgepack.rules.training import ResumeRule, StepRule


def rules_in(module_names: Iterable[str]) -> tuple[Rule, ...]:
    """Return the rules of some modules, sorted by code; a rule imported by another module counts once."""
    values = [value for name in module_names for value in vars(import_module(name)).values()]
    rules_by_id = {id(value): value for value in values if isinstance(value, Rule)}
    return tuple(sorted(rules_by_id.values(), key=lambda rule: rule.code))


_ROOM = "bridgepack.rules"
#: Every rule, by code.
ALL_RULES = rules_in(info.name for info in pkgutil.walk_packages(import_module(_ROOM).__path__, f"{_ROOM}."))
#: Every rule that decides which rows the other rules can judge.
STRUCTURE_RULES = tuple(rule for rule in ALL_RULES if isinstance(rule, StructureRule))
#: Every rule on an artifact.
ARTIFACT_RULES = tuple(rule for rule in ALL_RULES if isinstance(rule, (StructureRule, RowRule, ArtifactRule)))
#: Every rule on a run.
RUN_RULES = tuple(rule for rule in ALL_RULES if isinstance(rule, RunRule))
#: The rules on a run whose changes are made where a recipe becomes a config. Advice is a person's choice.
FIXING_RULES = tuple(rule for rule in RUN_RULES if rule.is_fixable and rule.severity != Severity.ADVICE)
#: Every rule on a training step; the guard runs them, not `check`.
STEP_RULES = tuple(rule for rule in ALL_RULES if isinstance(rule, StepRule))
#: Every rule on a run that resumes from a checkpoint; the guard runs them, not `check`.
RESUME_RULES = tuple(rule for rule in ALL_RULES if isinstance(rule, ResumeRule))
GUARD_RULES = (*STEP_RULES, *RESUME_RULES)
#: Every rule on what the installed host itself says of a run.
HOST_RULES = tuple(rule for rule in ALL_RULES if isinstance(rule, HostRule))
#: Every rule on the user's suppressions.
SUPPRESSION_RULES = tuple(rule for rule in ALL_RULES if isinstance(rule, SuppressionRule))


#: Codes of rules that are gone, mostly of releases that are no longer supported. None of them is given again.
RETIRED = frozenset(
    {
        *("BP006", "BP041", "BP521", "BP524", "BP526", "BP613", "BP633", "BP801", "BP907", "BP960", "BP968", "BP969"),
        *("BP970", "BP974", "BP975"),
    }
)

#: (beginning of the code, title), the longer beginnings first.
GROUPS: tuple[tuple[str, str], ...] = (
    ("BP993", "What Megatron-Bridge itself says"),
    ("BP994", "Families of models"),
    ("BP87", "What validate() asks of other settings"),
    ("BP88", "What validate() asks of other settings"),
    ("BP74", "Numbers and switches of the model"),
    ("BP84", "Adapters"),
    ("BP85", "Recipes that are refused"),
    ("BP86", "Checkpoints"),
    ("BP89", "While training"),
    ("BP92", "CUDA graphs and FP8"),
    ("BP93", "Packing inside the batch"),
    ("BP94", "Packing inside the batch"),
    ("BP95", "Kinds of context parallelism"),
    ("BP96", "What happens around training"),
    ("BP97", "What happens around training"),
    ("BP98", "Installed versions"),
    ("BP99", "Suppressions"),
    ("BP0", "Switches of packing"),
    ("BP1", "Multiples and sizes"),
    ("BP2", "Paths and caches"),
    ("BP3", "Packs, shards and the manifest"),
    ("BP4", "The host's metadata file"),
    ("BP5", "Tokens, templates and masks"),
    ("BP6", "Batches, steps and epochs"),
    ("BP7", "Attention and rotary embeddings"),
    ("BP8", "Pipeline, expert and tensor parallelism"),
    ("BP9", "Families of models"),
)


def group_of(code: str) -> str:
    """Return the title of a rule's group."""
    return next(title for beginning, title in GROUPS if code.startswith(beginning))
