"""The verdict of the host's own validation, in the process that has the host imported."""

import os
import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from math import lcm
from pathlib import Path
from types import FrameType
from typing import Any

from bridgepack.bridge.artifact_paths import folder_of_packs, packs_in
from bridgepack.bridge.imports import import_host
from bridgepack.bridge.plain import field_names, value_at
from bridgepack.bridge.targets import quiet
from bridgepack.bridge.validating.gpu_host import pretend_gpu_host
from bridgepack.bridge.validating.trusted import UntrustedConfigError, refuse_untrusted
from bridgepack.bridge.wiring import Setting
from bridgepack.bridge.writing.assign import assign
from bridgepack.bridge.writing.write import to_bridge
from bridgepack.config.installed import top_packages
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import BridgepackError
from bridgepack.host.variables import DETERMINISTIC_VARIABLES, OFFLOADING_VARIABLES, RUN_VARIABLES
from bridgepack.records import HostVerdict
from bridgepack.user_files import read_bytes

_CONFIG = "training.config"
_LOADER = "utils.instantiate_utils"
TO_BRIDGE, VALIDATE = "to_bridge", "validate()"
#: Variables that say which process of a run this is; the host reads them before its settings.
_OF_A_RANK = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_NTASKS", "SLURM_PROCID")
_MAX_WORDS = 600
#: What the host says where the config of a model is not in the cache. Source: megatron/bridge/models/hf_pretrained/
#: safe_config_loader.py.
_NOT_AT_HAND = "Failed to load configuration"
#: Most settings that are said to be where the host refuses.
_MAX_NAMED = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A run to judge: a recipe, a file that the host saved, or the bytes of a live ConfigContainer."""

    recipe: Mapping[str, Any] = field(default_factory=dict)  #: a recipe in plain values
    artifact: str | None = None  #: folder of the packs that its run reads
    saved: str = ""  #: file of a saved ConfigContainer
    trusted: tuple[str, ...] = ()  #: modules of which a saved ConfigContainer may name classes and functions, too
    pickled: bytes = b""  #: a live ConfigContainer
    overrides: Mapping[str, Any] = field(default_factory=dict)  #: dotted path -> value, of a saved or live one
    world_size: int | None = None  #: number of GPUs; None if unknown: then as many as one copy of the model needs
    gpu: str = "h100"  #: GPU that the run is for


class CannotAskError(BridgepackError):
    """The settings cannot be brought to the host's validation; that says nothing about the run."""


def verdict_of(
    question: Question, config: Any = None, *, guard: AbstractContextManager[Any] | None = None
) -> HostVerdict:
    """Return what the host says of a run; nothing of the process is changed, `config` alone, which it may complete.

    Args:
        question: the run.
        config: its live ConfigContainer, if it is here already.
        guard: surrounds what may have side effects.

    Raises:
        CannotAskError: the settings cannot be brought to it.
    """
    import_host(_CONFIG)
    with quiet(), process_as_before(), pretend_gpu_host(question.gpu), guard or nullcontext():
        try:
            config = _config(question) if config is None else config
        except CannotAskError:
            raise
        except BridgepackError as error:
            fields = tuple(problem.field for problem in error.problems if problem.field)
            code = next((problem.code for problem in error.problems), "")
            return HostVerdict(
                state="refused", reason=str(error), stage=TO_BRIDGE, where=fields[:_MAX_NAMED], code=code
            )
        world_size = question.world_size or _smallest_world(config)
        try:
            validate_config(config, world_size)
        except PermissionError as error:
            raise CannotAskError(f"its validation {error}") from error
        # Whatever type the host raises (ValueError, AssertionError, TypeError, ...) is its verdict.
        except Exception as error:
            return _refusal(error, config, world_size)
    return HostVerdict(state="accepted", world_size=world_size)


def validate_config(config: Any, world_size: int) -> None:
    """Do what a run does first; a checkpoint counts as being there."""
    for name in [name for name in os.environ if name in _OF_A_RANK or name.startswith(RUN_VARIABLES)]:
        del os.environ[name]
    os.environ.update({"WORLD_SIZE": str(world_size), **_left_to_the_job(config)})
    if config.checkpoint.pretrained_checkpoint is not None:
        config.checkpoint.pretrained_checkpoint = str(Path(__file__).parent)
    name = "runtime_config_update"
    if "MegatronMIMO" in type(config.model).__name__:
        name = f"megatron_mimo_{name}"
    getattr(import_host(_CONFIG), name)(config)


def _left_to_the_job(config: Any) -> dict[str, str]:
    """Return what the job must export, as if it did: a rule of ours tells, and this machine is not the run's."""
    values = {**DETERMINISTIC_VARIABLES, **OFFLOADING_VARIABLES}
    return {name: value for name, value in values.items() if name not in config.env_vars}


@contextmanager
def process_as_before() -> Iterator[None]:
    """Restore the environment and torch's switches, which the host sets from the settings."""
    torch, before = import_module("torch"), dict(os.environ)
    is_deterministic = torch.are_deterministic_algorithms_enabled()
    products = torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        torch.use_deterministic_algorithms(is_deterministic)
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = products


def _config(question: Question) -> Any:
    if question.recipe:
        return _config_of_recipe(SFTRecipe.from_mapping(question.recipe), question.artifact)
    if question.saved:
        config = _config_of_file(question.saved, question.trusted)
    else:
        raise CannotAskError("no settings were given")
    return with_overrides(config, question.overrides)


def _config_of_recipe(recipe: SFTRecipe, artifact: str | None) -> Any:
    try:
        return to_bridge(_with_a_length(recipe, artifact), artifact=artifact)
    except BridgepackError as error:
        if isinstance(error.__cause__, (OSError, ImportError)) or _NOT_AT_HAND in str(error):
            raise CannotAskError(str(error)) from error
        raise


def _with_a_length(recipe: SFTRecipe, artifact: str | None) -> SFTRecipe:
    """Return a recipe with a number of steps: the run will have one, and without packs it is not known which."""
    has_length = recipe.packing.mode != "offline" or recipe.schedule.train_iters is not None
    folder = None if has_length else folder_of_packs(recipe, artifact)
    if has_length or (folder is not None and packs_in(folder).num_packs):
        return recipe
    return recipe.override({"schedule.num_epochs": None, "schedule.train_iters": 1})


def _config_of_file(path: str, modules: tuple[str, ...]) -> Any:
    loader = import_host(_LOADER)
    try:
        values = import_module("yaml").safe_load(read_bytes(Path(path)))  # as the host reads it
        refuse_untrusted(values, modules=modules)
        for module in modules:
            loader.register_allowed_target_prefix(module)
        return import_host(_CONFIG).ConfigContainer.from_dict(values, mode=loader.InstantiationMode.LENIENT)
    except UntrustedConfigError as error:
        raise CannotAskError(f"{path}: {error}") from error
    # Its loader raises its own errors, those of omegaconf, and those of every class that it makes.
    except Exception as error:
        raise CannotAskError(f"{path} cannot be loaded as a ConfigContainer: {_words(error)}") from error


def with_overrides(config: Any, overrides: Mapping[str, Any]) -> Any:
    """Return a config with values, dotted path -> value.

    Raises:
        CannotAskError: the host's classes do not take one.
    """
    try:
        assign(
            config, (Setting(path=path, value=value, origin="recipe", field=path) for path, value in overrides.items())
        )
    except BridgepackError as error:
        raise CannotAskError(f"--set {error}") from error
    return config


def _smallest_world(config: Any) -> int:
    """Return the GPUs of one copy of the model."""
    sizes = {
        name: getattr(config.model, f"{name}_parallel_size", None) or 1
        for name in ("tensor_model", "pipeline_model", "context", "expert_model", "expert_tensor")
    }
    dense = sizes["tensor_model"] * sizes["context"] * sizes["pipeline_model"]
    return lcm(dense, sizes["expert_model"] * sizes["expert_tensor"] * sizes["pipeline_model"])


def _refusal(error: Exception, config: Any, world_size: int) -> HostVerdict:
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    frame, line = ([(frame, line) for frame, line in frames if _place_in_host(frame)] or frames)[-1]
    return HostVerdict(
        state="refused",
        reason=_words(error),
        stage=VALIDATE,
        where=_settings_in(str(error), config, _sections_in(frame, config)),
        place=f"{_place_in_host(frame) or frame.f_code.co_filename}:{line}",
        world_size=world_size,
    )


def _place_in_host(frame: FrameType) -> str:
    """Return the file of a frame from the host's package on, as `megatron/core/utils.py`; empty for other files."""
    path = frame.f_code.co_filename
    places = (f"{package}/{path.rpartition(f'/{package}/')[2]}" for package in top_packages() if f"/{package}/" in path)
    return next(places, "")


def _words(error: BaseException) -> str:
    """Return an error's type and its text on one line."""
    text = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {text if len(text) <= _MAX_WORDS else text[:_MAX_WORDS] + '...'}"


def _sections_in(frame: FrameType, config: Any) -> list[str]:
    """Return the sections of a config: those that the frame works on first, then the model, then the others."""
    sections_at_work = [value for value in (frame.f_locals.get("self"), frame.f_locals.get("cfg")) if value is not None]
    names = sorted(field_names(config), key=lambda name: (name != "model", name != "dataset", name))
    return sorted(names, key=lambda name: not any(getattr(config, name, None) is value for value in sections_at_work))


_WORD = re.compile(r"(?:--)?[A-Za-z_][\w.-]*\w")


def _settings_in(text: str, config: Any, sections: list[str]) -> tuple[str, ...]:
    """Return the settings that a text names: `scheduler.max_steps`, `--moe-router-topk`, `self.num_layers`."""
    paths: dict[str, None] = {}
    for word in _WORD.findall(text):
        name = word.removeprefix("--").replace("-", "_")
        kind, _, field = name.partition(".")
        sections_of_kind = [section for section in sections if type(getattr(config, section, None)).__name__ == kind]
        name = (
            field
            if kind in ("self", "cfg", "config")
            else f"{sections_of_kind[0]}.{field}"
            if sections_of_kind and field
            else name
        )
        if "_" not in name and "." not in name and not word.startswith("--"):
            continue
        places = (name, *(f"{section}.{name}" for section in sections))
        path = next((place for place in places if "." in place and _is_field(config, place)), None)
        if path is not None:
            paths[path] = None
    return tuple(paths)[:_MAX_NAMED]


def _is_field(config: Any, path: str) -> bool:
    holder, _, name = path.rpartition(".")
    node = value_at(config, holder)
    if node is None or isinstance(node, (bool, int, float, str, list, tuple)):
        return False
    inner = getattr(node, "transformer", None)
    return name in (node if isinstance(node, Mapping) else field_names(node) | (field_names(inner) if inner else set()))
