"""What rules see of a recipe, held against its ConfigContainer: every value, every finding, every skipped rule."""

from pathlib import Path
from typing import Any

from bridgepack.bridge.adopting.adopt import plain_differences
from bridgepack.bridge.container import config_of_container
from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.records import RunConfig
from bridgepack.rules.judging.environment import target_versions
from bridgepack.rules.judging.judge import judge_run
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.registry import RUN_RULES
from tests.support.installed_host import host_version

#: Values that a recipe is judged without, as no rule reads them: functions, the configs of vision and sound, and the
#: source of a run that packs nothing beforehand, which the host makes of its own presets. Folders that the host puts
#: below the current one are on file without it.
NOT_COMPARED = ("dataset.source", "dataset.validation_source")

#: Code -> why `check` may find it in a recipe or in its ConfigContainer alone.
ONE_SIDED = {
    "BP126": "of packs that are not built yet, it judges a container, whose packs another tool may make",
    "BP127": "it judges what `bridgepack build` would make of a recipe",
    "BP812": "a container has what the host switches off already off",
    "BP637": "packing.balance is no setting of the host",
}


def found_in_one_alone(recipe: SFTRecipe, config: Any) -> set[str]:
    """Return the codes that `check` finds in a recipe for the host at hand, or in its ConfigContainer, alone."""
    recipe = recipe.override({"bridge_version": host_version()})
    options = CheckOptions(world_size=recipe.parallelism.num_gpus, looks_at_files=False)
    mine, live = ({one.code for one in check_target(target, options).findings} for target in (recipe, config))
    return mine ^ live


def unlike_its_run(recipe: SFTRecipe, config: Any) -> dict[str, Any]:
    """Return what differs between a recipe for the host at hand and its ConfigContainer, as rules see them."""
    recipe = recipe.override({"bridge_version": host_version()})
    mine = config_of_recipe(recipe, place="run", artifact=Path(f"artifacts/{recipe.name}"))
    live = config_of_container(config, place="run")
    unlike = plain_differences({**live.values, "_target_": ""}, {**mine.values, "_target_": ""})
    values = {path: pair for path, pair in unlike.items() if not _is_left_out(pair[0], path)}
    outcomes = zip(("findings", "skipped"), _outcome(live, recipe), _outcome(mine, recipe), strict=True)
    return {**values, **{name: (one, other) for name, one, other in outcomes if one != other}}


def _is_left_out(value: Any, path: str) -> bool:
    if str(value).startswith(str(Path.cwd())):
        return True
    is_object = isinstance(value, dict) and "_name_" not in value
    is_of_model = path.startswith("model.") and is_object and not str(value.get("_target_")).startswith("torch.")
    return is_of_model or path.startswith(NOT_COMPARED)


def _outcome(config: RunConfig, recipe: SFTRecipe) -> tuple[list[str], list[str]]:
    subject = Run(config=config, versions=target_versions(host_version()), world_size_given=recipe.parallelism.num_gpus)
    report = judge_run(subject, RUN_RULES)
    return sorted(one.code for one in report.findings), [one.code for one in report.rules_skipped]
