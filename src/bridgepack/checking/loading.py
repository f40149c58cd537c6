"""Step 1 of a check, load: the target, and whether every option has an effect on it."""

from typing import Any

from bridgepack.bridge.refusing.recipes import refuse_packs_unread
from bridgepack.bridge.targets import Target, load_target
from bridgepack.checking.options import CheckOptions
from bridgepack.errors import ConfigError


def load(target: Any, options: CheckOptions) -> Target:
    """Return the target of a check, for which the options are good.

    Raises:
        ConfigError: the target is unknown, or an option has no effect on it.
    """
    checkable = target_of(target, options)
    _check_agreement(checkable, options)
    return checkable


def target_of(target: Any, options: CheckOptions) -> Target:
    """Return a target, which is loaded unless it has been.

    Raises:
        ConfigError: as `bridge.targets.load_target`.
    """
    return target if isinstance(target, Target) else load_target(target, options.overrides, artifact=options.artifact)


def _check_agreement(target: Target, options: CheckOptions) -> None:
    if target.artifact is not None and options.artifact is not None:
        raise ConfigError(
            f"--artifact is {str(options.artifact)!r}, and the target {target.place!r} is an artifact itself. "
            "Remove --artifact, or give a recipe or a config as target."
        )
    refuse_packs_unread(target.recipe, options.artifact, config=target.config)
    for name in ("world_size", "bridge_version", "environment"):
        if target.config is None and getattr(options, name) is not None:
            raise ConfigError(
                f"--{name.replace('_', '-')} describes a run, and {target.place!r} is only an artifact. Remove it, or "
                f"check the recipe with --artifact {target.place}."
            )
    if options.given and target.artifact is None and options.artifact is None:
        raise ConfigError(
            f"--given {next(iter(options.given))} describes packs, but none were given. Add --artifact FOLDER."
        )
