"""The ConfigContainer that a command trains: the recipe, its overrides, and what `run_recipe.py` itself changes."""

from __future__ import annotations

import inspect
import math
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bridgepack import geometry
from bridgepack.bridge.shipped import MODULE, import_host
from bridgepack.bridge.targets import quiet
from bridgepack.config.errors import nearest_name, shown
from bridgepack.errors import ConfigError
from bridgepack.launch.preflight_command import MODES, Command

_BENCHMARKS = "megatron.bridge.perf_recipes"
_BENCHMARK_NAME = re.compile(r".*_(pretrain|sft|peft)_[1-9]\d*gpu_[a-z0-9]+_[a-z0-9]+(_[a-z0-9_]+)?_config")
_TOPOLOGY = ("model.pipeline_model_parallel_size", "model.virtual_pipeline_model_parallel_size")
_LAYOUT = "model.pipeline_model_parallel_layout"


def container_of(command: Command) -> Any:
    """Return the ConfigContainer that a command trains, made by the recipe that it names.

    Raises:
        ConfigError: there is no such recipe, it cannot be made here, or the host would refuse what is asked for.
    """
    assert command.recipe is not None
    function = _recipe_function(command.recipe)
    with quiet():
        container = _host_step(
            f"recipe {command.recipe!r}", lambda: function(**_scheme(function, command)) if command.mode else function()
        )
    return changed_container(container, command)


def changed_container(container: Any, command: Command) -> Any:
    """Return a ConfigContainer as a command changes it; the object itself is changed.

    Source: Megatron-Bridge 0.6, scripts/training/run_recipe.py, main, in its order.

    Raises:
        ConfigError: the host would refuse what is asked for.
    """
    with quiet():
        if command.dataset is not None:
            _set_dataset(container, command)
        if command.is_deterministic:
            import_host(f"{MODULE}.utils.determinism_utils").apply_determinism_overrides(container)
        container = _overridden(container, command)
        if command.is_run_recipe:
            _sync(container, command)
    return container


def _recipe_function(name: str) -> Callable[..., Any]:
    """Return a recipe of the installed Megatron-Bridge, pretraining included.

    Raises:
        ConfigError: there is none of that name, or it is a benchmark.
    """
    recipes = import_host(MODULE)
    if _BENCHMARK_NAME.fullmatch(name) and _is_benchmark(name):
        raise ConfigError(
            f"recipe {name!r} is a benchmark of {_BENCHMARKS}, which run_recipe.py trains on made-up data. "
            "Remove PreflightPlugin from this task, or name what is trained: PreflightPlugin(target=...)."
        )
    function = getattr(recipes, name, None)
    if not callable(function):
        nearest = nearest_name(name, [known for known in vars(recipes) if known.endswith("_config")])
        hint = f"Did you mean {nearest}?" if nearest else "`bridgepack recipes list` names those of SFT and PEFT."
        raise ConfigError(f"recipe is {shown(name)}; allowed: a function of the installed {MODULE}. {hint}")
    return function  # type: ignore[no-any-return]


def _is_benchmark(name: str) -> bool:
    """Say whether a name is one of a benchmark; where both packages have it, the benchmark is what is trained."""
    families = [info.name for info in pkgutil.iter_modules(import_host(_BENCHMARKS).__path__) if info.ispkg]
    return any(hasattr(import_host(f"{_BENCHMARKS}.{family}"), name) for family in families)


def _scheme(function: Callable[..., Any], command: Command) -> dict[str, str]:
    """Return the arguments by which a recipe is told the kind of adapter.

    Raises:
        ConfigError: the recipe takes none, and its own is another.
    """
    if command.mode not in {"lora", "dora"}:
        return {}
    parameters = inspect.signature(function).parameters
    if "peft_scheme" in parameters:
        return {"peft_scheme": command.mode}
    if "peft" in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return {"peft": command.mode}
    if command.mode != "lora":
        raise ConfigError(
            f"--mode is {command.mode}, and the recipe {command.recipe!r} has one kind of adapter. Give --mode lora."
        )
    return {}


def _set_dataset(container: Any, command: Command) -> None:
    module = import_host(f"{MODULE}.utils.dataset_utils")
    if command.dataset not in module.DATASET_PRESETS:
        nearest = nearest_name(str(command.dataset), module.DATASET_PRESETS)
        hint = f"Did you mean {nearest}?" if nearest else "Use one of these."
        raise ConfigError(
            f"--dataset is {command.dataset!r}; allowed: {', '.join(sorted(module.DATASET_PRESETS))}. {hint}"
        )
    container.dataset = _host_step(
        f"--dataset {command.dataset}", lambda: module.build_dataset_config(container, command.dataset)
    )
    trained, asked = module.dataset_train_mode(container.dataset), command.mode
    if asked is not None and trained is not None and (trained == "pretrain") != (asked == MODES[0]):
        raise ConfigError(f"--dataset {command.dataset} is for {trained}, and --mode is {asked}. Change one of them.")


def _overridden(container: Any, command: Command) -> Any:
    """Return a ConfigContainer with the settings of a file and then the overrides, by the host's own function.

    Raises:
        ConfigError: the file is not here, or the host refuses an override, as it would on the GPUs.
    """
    file = command.config_file
    if file is not None and not Path(file).is_file():
        raise ConfigError(
            f"{command.script} is given --config-file {file!r}, which is not on this machine. Run this where it is, or "
            "give what is trained: PreflightPlugin(target=...)."
        )
    if file is None and not command.overrides:
        return container
    process = import_host("megatron.bridge.training.utils.omegaconf_utils").process_config_with_overrides
    return _host_step(
        f"{command.script} {' '.join(command.overrides)}",
        lambda: process(container, config_filepath=file, cli_overrides=list(command.overrides) or None),
    )


def _host_step(what: str, step: Callable[[], Any]) -> Any:
    """Return what a function of the host gives.

    Raises:
        ConfigError: it raises.
    """
    try:
        return step()
    except ConfigError:
        raise
    # Hydra, OmegaConf and the host's recipes raise types of their own; each of them would stop the run, too.
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"{what}: Megatron-Bridge refuses it here: {type(error).__name__}: {reason[:500]}. Correct it; where it "
            "needs the GPUs' machine, check a saved config: PreflightPlugin(target=FILE.yaml)."
        ) from error


def _sync(container: Any, command: Command) -> None:
    """Change what `run_recipe.py` itself changes after the overrides.

    Source: Megatron-Bridge 0.6, scripts/training/recipe_runner.py, the functions sync_*.
    """
    fields = {override.lstrip("+~").partition("=")[0] for override in command.overrides}
    model, dataset = container.model, container.dataset
    build_layout = getattr(model, "_pipeline_model_parallel_layout_builder", None)
    if build_layout is not None and fields.intersection(_TOPOLOGY) and _LAYOUT not in fields:
        pipeline, virtual = model.pipeline_model_parallel_size, model.virtual_pipeline_model_parallel_size
        model.pipeline_model_parallel_layout = _host_step(_LAYOUT, lambda: build_layout(pipeline, virtual))
    evaluation = getattr(container.dist, "eval_context_parallel_size", None)
    is_tuning = hasattr(dataset, "enable_offline_packing") or hasattr(dataset, "enable_in_batch_packing")
    splits = max(model.context_parallel_size, evaluation or 1) > 1
    if command.mode != MODES[0] and is_tuning and splits:
        model.calculate_per_token_loss = True
        container.ddp.average_in_collective = False
    if getattr(dataset, "enable_offline_packing", False):
        _align(container, evaluation)
    length = getattr(dataset, "seq_length", None) or getattr(dataset, "sequence_length", None)
    if length is not None:
        model.seq_length = length


def _align(container: Any, evaluation: int | None) -> None:
    """Make packs as long as the sequence, and their multiple one that the topology needs."""
    model, dataset = container.model, container.dataset
    specs = dataset.offline_packing_specs
    if specs is None or isinstance(specs, dict):
        specs = import_host("megatron.bridge.data.packing").PackedSequenceSpecs(**(specs or {}))
        dataset.offline_packing_specs = specs
    if dataset.seq_length is not None:
        specs.packed_sequence_size = dataset.seq_length
    needed = geometry.pad_seq_to_mult(
        context_parallel_size=model.context_parallel_size,
        tensor_model_parallel_size=model.tensor_model_parallel_size,
        sequence_parallel=bool(model.sequence_parallel),
        eval_context_parallel_size=evaluation,
    )
    specs.pad_seq_to_mult = math.lcm(specs.pad_seq_to_mult or 1, needed)
