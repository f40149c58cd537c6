"""Settings that the host overwrites when a run starts: an override of them would be ignored, so it is refused."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from bridgepack.bridge.plain import field_names, value_at
from bridgepack.bridge.shipped import named_precision
from bridgepack.bridge.wiring import Setting
from bridgepack.config.errors import shown
from bridgepack.errors import ConfigError

#: Setting that overwrites fields of other sections when a run starts -> those sections.
#: Source: megatron/bridge/training/config.py of 0.6.2, runtime_config_update; comm_overlap.py, setup.
_DECIDERS: Mapping[str, tuple[str, ...]] = {
    "mixed_precision": ("model", "optimizer", "ddp"),
    "comm_overlap": ("model", "optimizer", "ddp"),
}
#: Setting that the host computes when the run starts -> the settings that it computes it from.
#: Source: megatron/bridge/training/config.py of 0.6.2, _calculate_scheduler_steps; megatron/core/transformer/
#: transformer_config.py of 0.19.2, which moves cuda_graph_scope to cuda_graph_impl and cuda_graph_modules.
_WORKED_OUT: Mapping[str, str] = {
    "scheduler.lr_decay_steps": "scheduler.lr_decay_iters",
    "scheduler.lr_warmup_steps": "scheduler.lr_warmup_iters",
    "scheduler.wd_incr_steps": "train.train_iters",
    "scheduler.wsd_decay_steps": "scheduler.lr_wsd_decay_iters",
    "model.cuda_graph_scope": "model.cuda_graph_impl and model.cuda_graph_modules",
}
#: Setting that depends on another one -> (that setting, its value that disables it).
_DEPENDENT: Mapping[str, tuple[str, Any]] = {
    "model.sequence_parallel": ("model.tensor_model_parallel_size", 1),
    "model.cuda_graph_modules": ("model.cuda_graph_impl", "none"),
    "model.cuda_graph_scope": ("model.cuda_graph_impl", "none"),
}


def check_is_kept(config: Any, setting: Setting) -> None:
    """Check that the host neither overwrites a setting when the run starts nor ignores it.

    Raises:
        ConfigError: it does; the message names the setting to use instead.
    """
    path, value = setting.path, value_at(config, setting.path)
    found = f"{setting.place} is {shown(setting.value)}"
    if path in _WORKED_OUT:
        raise ConfigError(f"{found}; Megatron-Bridge computes it. Set {_WORKED_OUT[path]} instead.")
    if value and _has_no_effect(config, path):
        other, without_effect = _DEPENDENT[path]
        raise ConfigError(f"{found}; it has no effect while {other} is {without_effect}. Remove it, or change {other}.")
    for decider, decided in _decided(config, path):
        if decided != value:
            name = path.rpartition(".")[2]
            raise ConfigError(f"{found}; {decider} writes over it when the run starts. Set {decider}.{name} instead.")
    _check_is_not_worked_out_again(config, setting, found)


def is_ignored(config: Any, path: str) -> bool:
    """Return whether the host ignores, recomputes or overwrites a setting of this config."""
    is_worked_out = path in _WORKED_OUT and path not in _DEPENDENT
    return is_worked_out or _has_no_effect(config, path) or any(True for _ in _decided(config, path))


def _has_no_effect(config: Any, path: str) -> bool:
    other, without_effect = _DEPENDENT.get(path, ("", None))
    return bool(other) and value_at(config, other) == without_effect


def _decided(config: Any, path: str) -> Iterator[tuple[str, Any]]:
    section, _, name = path.partition(".")
    for decider, sections in _DECIDERS.items():
        source = getattr(config, decider)
        source = named_precision(source) if isinstance(source, str) else source
        if section in sections and source is not None and name in field_names(source):
            yield decider, getattr(source, name)


def _check_is_not_worked_out_again(config: Any, setting: Setting, found: str) -> None:
    """Raise `ConfigError` if the class of a section recomputes a field when the run starts.

    Source: megatron/bridge/training/config.py of 0.6.2, validate(): it runs `__post_init__` again if there is no
    `finalize`.
    """
    section, _, name = setting.path.partition(".")
    node: Any = getattr(config, section, None)
    if name not in field_names(node) or not hasattr(node, "__post_init__") or hasattr(node, "finalize"):
        return
    again, kind = copy.deepcopy(node), type(node).__name__
    try:
        again.__post_init__()
    except (AssertionError, TypeError, ValueError) as error:
        raise ConfigError(f"{found}; {kind} refuses it: {error} Set what it asks for, or remove it.") from error
    if getattr(again, name) != getattr(node, name):
        raise ConfigError(
            f"{found}; {kind} sets it to {shown(getattr(again, name))} by itself. Remove it, and set what {kind} "
            "takes it from."
        )
