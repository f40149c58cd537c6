"""Step 2 of a check, settings: what the host of one version reads of the target."""

from dataclasses import replace

from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.bridge.targets import Target
from bridgepack.checking.options import CheckOptions
from bridgepack.config.installed import installed_version
from bridgepack.host import BRIDGE
from bridgepack.rules.judging.environment import Versions, target_versions
from bridgepack.rules.judging.loaded import in_current_names
from bridgepack.rules.judging.subject import Run


def settings_of(target: Target, options: CheckOptions) -> Run | None:
    """Return the run of a target, without facts around its settings, for the version that is judged for.

    None for an artifact alone.

    Raises:
        ConfigError: the version is not supported.
    """
    config, recipe = target.config, target.recipe
    if config is None:
        return None
    versions = versions_of(options, None if recipe is None else recipe.bridge_version, config.bridge_version)
    if recipe is not None and versions.release.name != recipe.release.name:
        recipe = recipe.override({"bridge_version": str(versions[BRIDGE])})
        config = replace(config_of_recipe(recipe, place=target.place, artifact=options.artifact), inputs=config.inputs)
    return Run(config=in_current_names(config, versions), versions=versions, world_size_given=options.world_size)


def versions_of(options: CheckOptions, of_recipe: str | None, of_file: str | None) -> Versions:
    """Return the versions to judge for.

    They are the option's, the one `of_recipe`, those of the environment, the one `of_file` that holds the settings or
    the packs, or the installed ones.
    """
    of_environment = {} if options.environment is None else options.environment.versions
    default = None if BRIDGE in of_environment else of_file or installed_version()
    return target_versions(options.bridge_version or of_recipe or default, of_environment)
