"""What a task of nemo-run trains, as a check takes it: said by the user, or the one argument that says it.

Nothing is guessed. What a task does not show is refused with the line to write.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

import fiddle as fdl
from nemo_run import Executor, Script

from bridgepack.bridge.container import ALL_SECTIONS, changed, is_container
from bridgepack.bridge.targets import SHIPPED, Target, load_target, quiet
from bridgepack.bridge.wiring import OVERRIDES
from bridgepack.config.load import parse_overrides
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.launch.preflight_world import reads_arguments_by_shell

#: The script of Megatron-Bridge's repository that trains a recipe by its name; it changes its working folder.
RUN_RECIPE = "run_recipe.py"
#: Its options that change no setting. Source: Megatron-Bridge 0.6, scripts/training/run_recipe.py, _build_parser.
_NAMING_OPTIONS = frozenset(
    {"--recipe", "--model", "--step-func", "--step_func", "--dry-run", "--dry_run", "--dump-env", "--dump_env"}
)
#: Options by which scripts take a YAML file of settings.
_CONFIG_FILE_OPTIONS = frozenset({"--config-file", "--config_file"})
_ARGUMENTS = ("recipe", "config")
_OVERRIDE = re.compile(rf"(\+\+|\+|~)?(?:{'|'.join(sorted(ALL_SECTIONS))})(?:\.[^=\s]+)?(=.*)?", re.DOTALL)


def trained_target(
    task: Any, executor: Executor, *, target: str | None, overrides: Mapping[str, Any], artifact: Path | None
) -> Target:
    """Return what a task trains; `overrides` are the user's own, after those among a script's arguments.

    Raises:
        ConfigError: it is not said, cannot be loaded here, or the task changes it in a way that is not seen.
    """
    words = _words(task, executor) if isinstance(task, Script) else []
    if target is not None:
        found = load_target(target, artifact=artifact)
    elif (value := _argument_of(task)) is not None:
        found = load_target(value, artifact=artifact)
    else:
        raise ConfigError(f"PreflightPlugin cannot see what {task_name(task)} trains. Say it: {_line(words)}")
    if found.kind == "artifact":
        raise ConfigError(
            f"target is {target!r}, an artifact. Give a recipe or a config as target, and artifact=FOLDER."
        )
    if found.kind != "saved":
        _check_options(task_name(task), words)
    return _with(found, _overrides(words), overrides, artifact)


def task_name(task: Any) -> str:
    """Return what a task is called in messages."""
    if isinstance(task, Script):
        return "the inline script" if task.inline else PurePosixPath(task.path).name
    function = getattr(task, "__fn_or_cls__", task)
    return str(getattr(function, "__name__", type(function).__name__))


def is_run_recipe(task: Any) -> bool:
    """Say whether a task is Megatron-Bridge's own script."""
    return isinstance(task, Script) and RUN_RECIPE in (task.inline or task_name(task))


def _with(found: Target, seen: Mapping[str, Any], overrides: Mapping[str, Any], artifact: Path | None) -> Target:
    """Return a target with the overrides of a script, which are the host's paths, and then the user's."""
    if not seen and not overrides:
        return found
    place = f"{found.place} with {len(seen)} override{'s' if len(seen) > 1 else ''}" if seen else found.place
    if found.recipe is not None:
        paths = {f"{OVERRIDES}.{path}": value for path, value in seen.items()}
        return replace(load_target(found.recipe, {**paths, **overrides}, artifact=artifact), place=place)
    assert found.config is not None
    return replace(found, place=place, config=changed(found.config, {**seen, **overrides}))


def _argument_of(task: Any) -> Any:
    """Return the recipe or the ConfigContainer that a task's argument is, made from its config; None without one."""
    task = task.resolve() if getattr(task, "is_lazy", False) else task
    if not isinstance(task, fdl.Buildable):
        return None
    with quiet():
        made = [fdl.build(value) for name in _ARGUMENTS if (value := task.__arguments__.get(name)) is not None]
    found = [value for value in made if isinstance(value, SFTRecipe) or is_container(value)]
    return found[0] if len(found) == 1 else None


def _overrides(words: Sequence[str]) -> dict[str, Any]:
    """Return the overrides among a script's arguments, path -> value."""
    found = [word for word in words if (match := _OVERRIDE.fullmatch(word)) and (match[2] or match[1] == "~")]
    removed = next((word for word in found if word.startswith("~")), None)
    if removed is not None:
        raise ConfigError(f"override {removed!r} removes a field; here only path=value is understood. Set it instead.")
    return parse_overrides(tuple(word.lstrip("+") for word in found), option="override")


def _check_options(name: str, words: Sequence[str]) -> None:
    """Accept a script without options that change settings."""
    calls = [index for index, word in enumerate(words) if PurePosixPath(word).name == RUN_RECIPE]
    after = words[calls[0] + 1 :] if calls else []
    for word in (*words, *after):
        flag = word.partition("=")[0]
        is_unseen = word in after and flag.startswith("-") and flag not in _NAMING_OPTIONS
        if flag in _CONFIG_FILE_OPTIONS or is_unseen:
            raise ConfigError(
                f"{name} is given {flag}, and PreflightPlugin does not see what that changes. Give fields as "
                "section.field=value instead, or save the config that is trained, cfg.to_yaml(FILE), and say "
                "PreflightPlugin(target=FILE)."
            )


def _words(script: Script, executor: Executor) -> list[str]:
    """Return the name of a script, and its arguments as it gets them."""
    try:
        if script.inline:
            return shlex.split(script.inline.replace("\\\n", " "), comments=True)
        by_shell = reads_arguments_by_shell(executor)
        return [task_name(script), *(shlex.split(" ".join(script.args)) if by_shell else script.args)]
    except ValueError as error:
        raise ConfigError(
            f"the arguments of {task_name(script)} cannot be split as a shell does: {error}. Correct the quotes."
        ) from None


def _line(words: Sequence[str]) -> str:
    """Return the line to write, with the recipe that a script is given where it is given one."""
    named = next((after for word, after in pairwise(words) if word == "--recipe"), None)
    is_place = named is None or ":" in named or "." in named
    shown = repr(named if is_place else f"{SHIPPED}{named}") if named else "TARGET"
    hint = "" if named else ", with TARGET as `bridgepack check` takes it, e.g. bridge:qwen3_8b_sft_config or FILE.yaml"
    return f"PreflightPlugin(target={shown}, overrides={{...}}){hint}."
