"""The ConfigContainer or the recipe among the arguments of a configured function."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import fiddle as fdl
from fiddle import daglish

from bridgepack.bridge.container import is_container
from bridgepack.bridge.targets import quiet
from bridgepack.config.errors import shown
from bridgepack.config.load import RECIPE_SUFFIX
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import BridgepackError, ConfigError

#: What functions that give one are called, and the arguments of training functions that take one.
_SUFFIXES = (RECIPE_SUFFIX, "_config")
_ARGUMENTS = frozenset({"config", "cfg", "recipe", "container", "config_container"})
_TYPES = frozenset({"ConfigContainer", "SFTRecipe"})
#: What to do where a task does not tell what it trains.
SAY_IT = (
    "PreflightPlugin(target=TARGET, overrides={...}), with TARGET as `bridgepack check` takes it, "
    "e.g. bridge:qwen3_8b_sft_config or FILE.yaml."
)


def config_in(task: Any) -> Any:
    """Return the ConfigContainer or SFTRecipe that a `run.Partial` trains; nothing is run but what makes it.

    Raises:
        ConfigError: there is none, there are several, or it cannot be made here.
    """
    if is_lazy(task):
        task = task.resolve()
    name = function_name(task)
    if _gives_config(task.__fn_or_cls__):
        found = [("", task)]
    else:
        found = list(_candidates(task))
    made = [(place, value) for place, value in ((place, _made(item, place, name)) for place, item in found) if value]
    if len({id(value) for _, value in made}) == 1:
        return made[0][1]
    if made:
        places = ", ".join(place for place, _ in made)
        raise ConfigError(_cannot_tell(name, f"several of its arguments give a config: {places}"))
    texts = [f"{key}={shown(value)}" for key, value in fdl.ordered_arguments(task).items() if isinstance(value, str)]
    hint = f" ({', '.join(texts)})" if texts else ""
    raise ConfigError(_cannot_tell(name, f"none of its arguments gives a ConfigContainer or an SFTRecipe{hint}"))


def function_name(task: Any) -> str:
    """Return what the function of a task is called."""
    function = getattr(task, "__fn_or_cls__", task)
    return str(getattr(function, "__name__", type(function).__name__))


def is_lazy(task: Any) -> bool:
    """Say whether a task is resolved only when it is run."""
    return bool(getattr(task, "is_lazy", False))


def _cannot_tell(name: str, why: str) -> str:
    return f"PreflightPlugin cannot tell what {name} trains: {why}. Say it: {SAY_IT}"


def _candidates(task: Any) -> Iterator[tuple[str, Any]]:
    """Yield (place, value) of what may give a config: the outermost first, nothing inside of them."""
    taken: list[tuple[Any, ...]] = []
    for value, path in daglish.iterate(task):
        if not path or any(path[: len(above)] == above for above in taken):
            continue
        is_argument = len(path) == 1 and getattr(path[0], "name", "") in _ARGUMENTS
        if _may_give_config(value, is_argument=is_argument):
            taken.append(path)
            yield daglish.path_str(path).lstrip("."), value


def _may_give_config(value: Any, *, is_argument: bool) -> bool:
    if isinstance(value, fdl.Buildable):
        return is_argument or _gives_config(value.__fn_or_cls__)
    if inspect.isfunction(value):
        return _gives_config(value)
    return isinstance(value, SFTRecipe) or is_container(value)


def _gives_config(function: Any) -> bool:
    """Say whether a function gives a config, by what it says it returns, or else by its name."""
    if inspect.isclass(function):
        return bool(_TYPES.intersection(base.__name__ for base in function.__mro__))
    returned = getattr(function, "__annotations__", {}).get("return")
    if returned is not None:
        name = returned if isinstance(returned, str) else getattr(returned, "__name__", "")
        return name.strip("'\"").rpartition(".")[2] in _TYPES
    return str(getattr(function, "__name__", "")).endswith(_SUFFIXES)


def _made(item: Any, place: str, task: str) -> Any:
    """Return the config that an argument gives; None where it gives something else.

    Raises:
        ConfigError: it fails.
    """
    try:
        with quiet():
            value = fdl.build(item) if isinstance(item, fdl.Buildable) else item
            if isinstance(item, fdl.Partial) or inspect.isfunction(value):
                value = value()
    except BridgepackError:
        raise
    # Whatever a user's function or the host raises, it would raise in the job, too.
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"{place or 'the config'} of {task} cannot be made here: {type(error).__name__}: {reason[:500]}. Correct "
            "it; where it needs the GPUs' machine, check a saved config: PreflightPlugin(target=FILE.yaml)."
        ) from error
    return value if isinstance(value, SFTRecipe) or is_container(value) else None
