"""The run of a target as rules judge it: its settings for one version of Megatron-Bridge, and facts around it."""

from dataclasses import replace
from pathlib import PurePath
from typing import Any

from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.bridge.targets import Target
from bridgepack.checking.options import CheckOptions
from bridgepack.config.errors import quoted
from bridgepack.config.installed import installed_version
from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.recipe.recorded import other_settings, recorded_recipe_values
from bridgepack.errors import BridgepackError, ConfigError
from bridgepack.host import BRIDGE, HostRelease
from bridgepack.records import Manifest, Waiting
from bridgepack.rules.judging.context import NO_PACKS
from bridgepack.rules.judging.environment import Versions, target_versions
from bridgepack.rules.judging.facts import ArtifactFacts
from bridgepack.rules.judging.files import Files
from bridgepack.rules.judging.loaded import in_current_names
from bridgepack.rules.judging.subject import NO_RECIPE, Run

#: Fields with paths.
_OF_FILES = ("data.train", "data.validation")
#: Fields that decide what is in the packs, and that other rules compare with the packs.
_COMPARED_ELSEWHERE = frozenset(
    {
        *("tokenizer.name_or_path", "tokenizer.revision", "tokenizer.chat_template"),
        "tokenizer.engine",  # changes no token
        *("packing.packed_sequence_size", "packing.pad_seq_to_mult"),
        *("preprocessing.kind", "preprocessing.loss_mode"),
    }
)


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
        other_settings=_other_settings(loaded.recipe, packs),
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


def _other_settings(recipe: SFTRecipe | None, packs: ArtifactFacts | None) -> tuple[str, ...] | str:
    """Return the settings about rows that differ from the packs' and that no other rule compares, or why not known."""
    if recipe is None or packs is None or packs.manifest is None:
        return NO_RECIPE if recipe is None else NO_PACKS if packs is None else "the packs have no manifest"
    try:
        made_with = load_recipe(recorded_recipe_values(packs.manifest))
    except BridgepackError as error:
        return f"the recipe in the packs' manifest cannot be read: {error}"
    is_other_kind = recipe.preprocessing.kind != made_with.preprocessing.kind
    return tuple(
        f"{name} {quoted(here)} (packs: {quoted(there)})"
        for name, here, there in other_settings(recipe, made_with)
        if name not in _COMPARED_ELSEWHERE
        and not (is_other_kind and name.startswith("preprocessing."))
        and not (name.startswith(_OF_FILES) and _is_same_place(here, there))
    )


def _is_same_place(here: Any, there: Any) -> bool:
    """Return whether values are equal but for the folders before paths: `a.jsonl` and `/data/a.jsonl`."""
    if isinstance(here, str) and isinstance(there, str):
        short, long = sorted((PurePath(here).parts, PurePath(there).parts), key=len)
        return here == there or (bool(short) and long[-len(short) :] == short)
    if isinstance(here, list) and isinstance(there, list):
        return len(here) == len(there) and all(map(_is_same_place, here, there))
    if isinstance(here, dict) and isinstance(there, dict):
        return here.keys() == there.keys() and all(_is_same_place(here[name], there[name]) for name in here)
    return bool(here == there)


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
