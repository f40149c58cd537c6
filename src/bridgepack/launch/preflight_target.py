"""What a task of nemo-run trains, as a check takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nemo_run import Executor, Script

from bridgepack.bridge.container import changed, config_of_container, is_container
from bridgepack.bridge.targets import SHIPPED, Target, load_target, load_value
from bridgepack.bridge.wiring import OVERRIDES
from bridgepack.config.load import parse_overrides
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.launch.preflight_command import Command, read_overrides, read_strictly
from bridgepack.launch.preflight_partial import SAY_IT, config_in, function_name
from bridgepack.launch.preflight_run_recipe import changed_container, container_of

_FILE_SUFFIXES = (".yaml", ".yml", ".toml")


@dataclass(frozen=True, kw_only=True, slots=True)
class Launched:
    """What a task trains.

    Attributes:
        target: the settings, with every override.
        artifact: packs that the command names; None where it names none.
        is_moved: whether the script changes its working folder, so that relative paths mean something else there.
    """

    target: Target
    artifact: Path | None = None
    is_moved: bool = False


def launched(
    task: Any, executor: Executor, *, target: str | None, overrides: Mapping[str, Any], artifact: Path | None
) -> Launched:
    """Return what a task trains.

    Args:
        task: a `run.Script`, a `run.Partial` or a lazy entry point; it is only read.
        executor: where it would run.
        target: what it trains, where the user says so; then the task is asked for overrides alone.
        overrides: the user's own, after all others.
        artifact: packs that the run reads, where the user names them.

    Raises:
        ConfigError: it cannot be told, or cannot be loaded here.
    """
    command = _command(task, executor, is_named=target is not None)
    named = artifact or (Path(command.artifact) if command.artifact else None)
    if target is not None:
        found = _named(target, command, overrides, named)
    elif command.recipe is None:
        found = _of_value(config_in(task), f"the config of {function_name(task)}", (), overrides, named)
    elif _is_place(command.recipe):
        found = _named(command.recipe, command, overrides, named)
    else:
        found = _of_value(container_of(command), command.recipe, command.overrides, overrides, named)
    return Launched(target=found, artifact=named, is_moved=command.is_run_recipe)


def _command(task: Any, executor: Executor, *, is_named: bool) -> Command:
    if not isinstance(task, Script):
        return Command(script=type(task).__name__)
    if is_named:
        return read_overrides(task, executor)
    try:
        return read_strictly(task, executor)
    except ConfigError as error:
        raise ConfigError(f"PreflightPlugin cannot tell what is trained: {error} Or say it: {SAY_IT}") from None


def _is_place(recipe: str) -> bool:
    return ":" in recipe or recipe.endswith((*_FILE_SUFFIXES, ".py"))


def _named(target: str, command: Command, overrides: Mapping[str, Any], artifact: Path | None) -> Target:
    """Return a target by where it is, with the overrides of the command and then the user's."""
    if target.lower().endswith(_FILE_SUFFIXES) or Path(target).is_dir():
        return _of_file(target, command, overrides, artifact)
    text = target if ":" in target or target.endswith(".py") or not target.endswith("_config") else f"{SHIPPED}{target}"
    value = load_value(text)
    if is_container(value):
        value = changed_container(value, command)
    return _of_value(value, target, command.overrides, overrides, artifact)


def _of_value(
    value: Any, place: str, applied: Sequence[str], overrides: Mapping[str, Any], artifact: Path | None
) -> Target:
    """Return a config as a target; the overrides of a command are in a ConfigContainer already."""
    if applied:
        place = f"{place} with {len(applied)} override{'s' if len(applied) > 1 else ''}"
    if is_container(value):
        config = changed(config_of_container(value, place=place), overrides)
        return Target(kind="container", place=place, config=config)
    if isinstance(value, SFTRecipe):
        paths = {f"{OVERRIDES}.{path}": item for path, item in _plain(applied).items()}
        return replace(load_target(value, {**paths, **overrides}, artifact=artifact), place=place)
    raise ConfigError(
        f"target {place!r} gives a {type(value).__name__}; allowed: an SFTRecipe or a ConfigContainer. Return one."
    )


def _of_file(target: str, command: Command, overrides: Mapping[str, Any], artifact: Path | None) -> Target:
    found = load_target(target, artifact=artifact)
    if found.kind == "artifact":
        raise ConfigError(
            f"target is {target!r}, an artifact. Give a recipe or a config as target, and artifact=FOLDER."
        )
    if command.config_file is not None or command.dataset is not None or command.is_deterministic:
        raise ConfigError(
            f"target is the file {target!r}, and {command.script} changes more of it than fields. Give a recipe of "
            "Megatron-Bridge as target, or save the config that is trained: cfg.to_yaml(FILE)."
        )
    prefix = f"{OVERRIDES}." if found.kind == "recipe" else ""
    paths = {f"{prefix}{path}": item for path, item in _plain(command.overrides).items()}
    return load_target(target, {**paths, **overrides}, artifact=artifact)


def _plain(overrides: Sequence[str]) -> dict[str, Any]:
    """Return overrides in Hydra's form as path -> value.

    Raises:
        ConfigError: one removes a field, which only a live ConfigContainer can follow.
    """
    removed = next((override for override in overrides if override.startswith("~")), None)
    if removed is not None:
        raise ConfigError(f"override {removed!r} removes a field; here only path=value is understood. Set it instead.")
    return parse_overrides(tuple(override.lstrip("+") for override in overrides), option="override")
