"""API functions on rules: check and fix a target, explain rules."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridgepack.api.progress import shows_progress
from bridgepack.api.targets import with_rows_on_disk
from bridgepack.bridge.targets import Target, load_target, saying_places, with_notes
from bridgepack.checking.check import check_target
from bridgepack.checking.fix import Fixed, fix_target
from bridgepack.checking.options import CheckOptions, named_environment
from bridgepack.config.arguments import check_arguments, stated_options
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.reading.remote import artifact_place
from bridgepack.reporting.rules import explain_rule
from bridgepack.rules.judging.report import CheckReport


@shows_progress
@check_arguments
@saying_places
def check(target: Any, **options: Any) -> CheckReport:
    """Return the check report on a recipe, a ConfigContainer or an artifact.

    Example: `bridgepack.check("recipes/mine.yaml", artifact="packed", world_size=16).has_errors`.

    Args:
        target: an artifact's folder, or packed files of another tool; an SFTRecipe, or its fields as a dict, with data
            as for `build`; a ConfigContainer, or the location of one as on the command line; or a loaded target.
        options: fields of `bridgepack.checking.options.CheckOptions`: artifact, world_size, bridge_version, overrides,
            select, ignore, ... `artifact` may be text, `environment` is `here` or a file; None means not given.

    Raises:
        ConfigError: the target or an option is unknown.
        ArtifactError: the folder is not an artifact.
        RuleCrashError: a rule raised.
    """
    target, settings = _split_options(target, options, "check")
    return check_target(target, settings)


@check_arguments
@saying_places
def fix(target: Any, **options: Any) -> Fixed:
    """Return the safe changes that a check proposes for a file of settings, and the report after them.

    The file is only changed by the result's `write`.

    Example: `bridgepack.fix("mine.yaml").write()`.

    Args:
        target: a recipe's or a saved config's file, as for `check`.
        options: as for `check`; overrides are not written.

    Raises:
        ConfigError: the target is not a file of yours, a change cannot be made in it, or changes contradict.
        RuleCrashError: a rule raised.
    """
    target, settings = _split_options(target, options, "fix")
    return fix_target(target, settings)


def _split_options(target: Any, options: Mapping[str, Any], operation: str) -> tuple[Any, CheckOptions]:
    settings = {name: value for name, value in options.items() if value is not None}
    if isinstance(settings.get("environment"), (str, Path)):
        settings["environment"] = named_environment(settings["environment"])
    if isinstance(settings.get("artifact"), str):
        settings["artifact"] = artifact_place(settings["artifact"])
    if isinstance(target, str | Path) and settings.get("overrides"):
        target = load_target(target)  # here, so that its code runs once
    recipe = target.recipe if isinstance(target, Target) else target
    if isinstance(recipe, Mapping | SFTRecipe):
        recipe, settings = with_rows_on_disk(recipe, settings)
        target = target if isinstance(target, Target) else recipe
    check_options = stated_options(CheckOptions, settings, operation)
    if isinstance(target, Target):
        target = with_notes(target.override(check_options.overrides).reading(check_options.artifact or target.packs))
    return target, check_options


@check_arguments
def explain(rule: str = "BP") -> dict[str, Any] | list[dict[str, Any]]:
    """Return a rule as plain values: why it matters, a bad and a good setting, the fix, the evidence.

    Example: `bridgepack.explain("BP101")["why"]`.

    Args:
        rule: a code or a name; the prefix of a code, e.g. `BP1`, or words of their texts return a list of rules; by
            default all.

    Raises:
        ConfigError: no such rule.
    """
    return explain_rule(rule)
