"""The run of a target as rules judge it: its settings for one version of Megatron-Bridge, and facts around it."""

from dataclasses import replace

from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.bridge.targets import Target
from bridgepack.checking.options import CheckOptions
from bridgepack.config.installed import installed_version
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import BridgepackError, ConfigError
from bridgepack.host import BRIDGE, HostRelease
from bridgepack.records import Manifest, Waiting
from bridgepack.rules.judging.context import NO_PACKS
from bridgepack.rules.judging.environment import Versions, target_versions
from bridgepack.rules.judging.facts import ArtifactFacts
from bridgepack.rules.judging.files import Files
from bridgepack.rules.judging.loaded import in_current_names
from bridgepack.rules.judging.subject import Run


def run_of(
    loaded: Target, packs: ArtifactFacts | None, options: CheckOptions, *, waiting: Waiting | str | None = None
) -> Run:
    """Return the run of a target with settings, for the version that the options, the settings or bridgepack say.

    Args:
        loaded: the target.
        packs: facts about the packs that the run reads, or None.
        options: options of the check.
        waiting: how long ranks wait for each other, if that is known already.

    Raises:
        ConfigError: the version is not supported.
    """
    environment, config = options.environment, loaded.config
    assert config is not None
    stated = None if loaded.recipe is None else loaded.recipe.bridge_version
    versions = _versions(options, stated, config.bridge_version)
    if loaded.recipe is not None and versions.release.name != loaded.recipe.release.name:
        recipe = loaded.recipe.override({"bridge_version": str(versions[BRIDGE])})
        config = replace(config_of_recipe(recipe, place=loaded.place, artifact=options.artifact), inputs=config.inputs)
    return Run(
        config=in_current_names(config, versions),
        versions=versions,
        world_size_given=options.world_size,
        artifact=packs,
        environment=environment,
        files=Files() if options.looks_at_files else None,
        waiting=waiting or _waiting(loaded, options, str(versions[BRIDGE])),
        balance_refused=None if loaded.recipe is None else _balance_refusal(loaded.recipe),
    )


def release_of_rows(loaded: Target, manifest: Manifest | None, options: CheckOptions) -> HostRelease:
    """Return the release that reads the rows: of the run, or of the artifact's own recipe where there is no run."""
    recorded = None if manifest is None else manifest.recipe.get("bridge_version")
    stated = None if loaded.recipe is None else loaded.recipe.bridge_version
    found = recorded if loaded.config is None else loaded.config.bridge_version
    return _versions(options, stated, found).release


def _versions(options: CheckOptions, stated: str | None, found: str | None) -> Versions:
    """Return the versions to judge for.

    They are the option's, those that a recipe states, the given environment's, those that the settings were `found`
    with, or the installed ones.
    """
    given = {} if options.environment is None else options.environment.versions
    default = None if BRIDGE in given else found or installed_version()
    chosen = stated or default if options.bridge_version is None else options.bridge_version
    return target_versions(chosen, given)


def _balance_refusal(recipe: SFTRecipe) -> str | None:
    if recipe.packing.balance.kind == "none":
        return None
    from bridgepack.planning.balance import balance_for

    try:
        balance_for(recipe)
    except ConfigError as error:
        return str(error)
    return None


def _waiting(loaded: Target, options: CheckOptions, version: str) -> Waiting | str:
    folder, source = loaded.artifact or options.artifact, loaded.recipe or loaded.config
    if folder is None or source is None:
        return NO_PACKS
    from bridgepack.data.artifact.artifact import Artifact
    from bridgepack.planning.balance import waiting_in

    try:
        artifact = Artifact(folder, may_be_changed=True)
        return waiting_in(artifact, source, world_size=options.world_size, version=version)
    except BridgepackError as error:
        return str(error)
