"""Loads the SFT and PEFT recipes that megatron-bridge ships, offline, and runs the host's own validation on them."""

import contextlib
import copy
import functools
import importlib
import io
import logging
import math
import pkgutil
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import isfunction
from pathlib import Path
from typing import Any

import pytest

from bridgepack.bridge.container import config_of_container, with_changes
from bridgepack.bridge.live import copy_of
from bridgepack.bridge.validating.verdict import process_as_before, validate_config
from bridgepack.records.checks import Finding
from bridgepack.rules.judging.environment import target_versions
from bridgepack.rules.judging.judge import judge_run
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.registry import RUN_RULES
from tests.support.gpu_host import pretend_gpu_host
from tests.support.hub_configs import offline_hub

type RecipeFunction = Callable[[], Any]

RECIPES = "megatron.bridge.recipes"
#: Raises by design.
NOT_LOADED = {
    f"{RECIPES}.qwen.h100.qwen3_next.qwen3_next_80b_a3b_peft_1gpu_h100_bf16_config": (
        "PEFT is not currently supported for Qwen3-Next"
    )
}

_RECIPE_NAME = re.compile(r"(?!_).*(sft|peft).*_config")
_NUM_GPUS = re.compile(r"_(\d+)gpu_")
_DEFAULT_WORLD_SIZE = 8
#: Builds the adapter's configuration of a recipe, is none itself.
_HELPERS = {"default_peft_config"}


def recipe_functions() -> list[tuple[str, RecipeFunction]]:
    """Return (module and name, function) of every SFT and PEFT recipe, each once, where it is defined, sorted."""
    root = importlib.import_module(RECIPES)
    found = {}
    for info in pkgutil.walk_packages(root.__path__, f"{root.__name__}."):
        for value in vars(importlib.import_module(info.name)).values():
            if isfunction(value) and _RECIPE_NAME.fullmatch(value.__name__) and value.__name__ not in _HELPERS:
                found[f"{value.__module__}.{value.__name__}"] = value
    return sorted(found.items())


@contextmanager
def recipes_offline(directory: Path) -> Iterator[None]:
    """Let recipes be loaded without a network: model configs come from `directory`, a missing one fails at once.

    A model of the hub is read once, which takes transformers longer than all else of a recipe; recipes get copies.
    """
    from megatron.bridge.models.conversion import auto_bridge

    load = functools.partial(auto_bridge.safe_load_config_with_retry, max_retries=0)
    load_once = functools.cache(load)

    def loaded(path: Any, **options: Any) -> Any:
        return load(path, **options) if Path(path).exists() else copy.deepcopy(load_once(path, **options))

    with offline_hub(directory), pytest.MonkeyPatch.context() as patch:
        patch.setattr(auto_bridge, "safe_load_config_with_retry", loaded)
        yield


def load_recipe_config(function: RecipeFunction) -> Any:
    """Return the ConfigContainer of a recipe, made as on a host with its GPU; wants `recipes_offline()` around it."""
    with silence(), pretend_gpu_host(gpu_of(f"{function.__module__}.{function.__name__}")):
        return function()


def recipe_configs() -> dict[str, Any]:
    """Return module and name of every recipe that can be loaded -> its ConfigContainer; wants `recipes_offline()`."""
    return {name: load_recipe_config(function) for name, function in recipe_functions() if name not in NOT_LOADED}


def gpu_of(name: str) -> str:
    """Return the GPU a recipe is written for; its module or its name says so."""
    return "gb200" if "gb200" in name else "h100"


def world_size_of(name: str, config: Any = None) -> int:
    """Return the number of ranks a recipe is written for: `..._16gpu_...` -> 16, 8 where the name has none.

    With its `config`, the next number of ranks that its parallel sizes divide.
    """
    named = _NUM_GPUS.search(name)
    world_size = int(named[1]) if named else _DEFAULT_WORLD_SIZE
    block = _num_ranks_of_one_replica(config.model) if config is not None else 1
    return math.ceil(world_size / block) * block


def validate(config: Any, world_size: int) -> str | None:
    """Return what the host's `runtime_config_update` raises for a config on `world_size` ranks, None if it passes.

    Works on a copy. The verdict is that of the machine at hand: put `pretend_gpu_host()` around it.
    """
    with process_as_before(), silence():
        try:
            candidate = copy_of(config)
            if candidate.peft is not None:
                candidate.checkpoint.pretrained_checkpoint = "/checkpoints/any"
            validate_config(candidate, world_size)
        # Whatever type upstream raises (ValueError, AssertionError, TypeError, ...) is its verdict.
        except Exception as error:
            return f"{type(error).__name__}: {str(error).strip().partition('\n')[0]}"
    return None


def findings_of(config: Any, place: str, world_size: int) -> Sequence[Finding]:
    """Return what the rules say of a config that has a checkpoint, as `validate` gives it, on so many ranks."""
    plain = with_changes(
        config_of_container(config, place=place), {"checkpoint.pretrained_checkpoint": "/checkpoints/any"}
    )
    subject = Run(config=plain, versions=target_versions(plain.bridge_version), world_size_given=world_size)
    return judge_run(subject, RUN_RULES).findings


def _num_ranks_of_one_replica(model: Any) -> int:
    pipeline = model.pipeline_model_parallel_size
    dense = model.tensor_model_parallel_size * model.context_parallel_size * pipeline
    expert_tensor = getattr(model, "expert_tensor_parallel_size", None) or 1
    expert = expert_tensor * (getattr(model, "expert_model_parallel_size", None) or 1) * pipeline
    return math.lcm(dense, expert)


@contextmanager
def silence() -> Iterator[None]:
    """Keep what the host prints, warns and logs from the output; around a loop, its turns need not ask all loggers."""
    disabled = logging.root.manager.disable
    if disabled < logging.CRITICAL:
        logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if disabled < logging.CRITICAL:
            logging.disable(disabled)
