"""Which objects a saved config may name: a list of ours, asked before the host makes anything of the file.

The host's own list is one of forbidden names, which another name of the same object passes. This one is about what a
name stands for.
"""

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any

from bridgepack.config.installed import installed_root
from bridgepack.errors import ConfigError
from bridgepack.host.roots import CANONICAL, canonical_name_of, in_package, is_within

_TARGET, _CALL, _PARTIAL = "_target_", "_call_", "_partial_"
#: Packages of which a saved config may name something.
_PACKAGES = ("megatron", "signal", "torch", "transformers")
#: Functions that Megatron-Bridge writes into saved configs: activations, initialisers, what builds layers' specs.
_FUNCTIONS = (
    *("torch.nn.functional.*", "torch._C._nn.*", "torch.nn.init.*"),
    *("megatron.core.activations.*", "megatron.core.fusions.*gelu", "megatron.core.transformer.utils.*gelu"),
    *("megatron.core.models.*_spec", canonical_name_of("models.*_spec")),
)
#: Packages of which every dataclass is a config class, and the config classes that are no dataclass.
_CONFIGS = (CANONICAL, "megatron.core", "megatron.training")
_OTHER_CONFIGS = tuple(f"megatron.core.quantization.quant_config.{name}" for name in ("RecipeConfig", "GlobMatcher"))
#: Methods that Megatron-Bridge has called, of configs of transformers.
_MADE_OF_VALUES = "from_dict"
_ALLOWED = (
    "config classes, enums, dtypes, activations, initialisers and specs of layers that Megatron-Bridge itself saves"
)
#: Longest part of a name that a message repeats.
_MAX_SHOWN = 200


class UntrustedConfigError(ConfigError):
    """A saved config names what is not ours to load."""


def refuse_untrusted(values: Any, *, modules: Sequence[str] = ()) -> None:
    """Refuse a parsed config if it names anything but what Megatron-Bridge writes there.

    Nothing is called; modules of Megatron-Bridge, torch, transformers and `modules` are imported to see what names
    stand for.

    Args:
        values: the config as YAML has it.
        modules: modules of a user whose classes and functions are allowed.

    Raises:
        UntrustedConfigError: a name is not allowed, or a text is an interpolation, which could become one.
    """
    for path, node in _nodes(values, ""):
        if isinstance(node, str) and "${" in node:
            raise UntrustedConfigError(
                f"{path} is {node[:_MAX_SHOWN]!r}, an interpolation; Megatron-Bridge saves none. Write its value."
            )
        if isinstance(node, Mapping) and _TARGET in node:
            _refuse_target(node, path, modules)


def _nodes(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, node
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from _nodes(key, f"{path or 'the config'}'s key")
            yield from _nodes(value, f"{path}.{key}" if path else str(key))
    elif isinstance(node, list | tuple | set):
        for index, value in enumerate(node):
            yield from _nodes(value, f"{path}.{index}")


def _refuse_target(node: Mapping[str, Any], path: str, modules: Sequence[str]) -> None:
    target = node[_TARGET]
    where = f"{path}.{_TARGET}" if path else _TARGET
    if not isinstance(target, str):
        raise UntrustedConfigError(f"{where} is {target!r:.{_MAX_SHOWN}}; allowed: the name of a class as text.")
    module = target.rpartition(".")[0]
    if any(is_within(target, package) for package in (*_PACKAGES, installed_root(), *modules)):
        thing = _object_named(target)
        if thing is not None and _is_allowed(thing, node, modules):
            return
        if thing is None and any(is_within(target, name) for name in modules):
            raise UntrustedConfigError(
                f"{where} is {target[:_MAX_SHOWN]!r}, and --trust-config names its module; Python cannot import it, or "
                "it has no such object. Install the module, or put its folder on PYTHONPATH."
            )
        module = getattr(thing, "__module__", None) or module
    raise UntrustedConfigError(
        f"{where} is {target[:_MAX_SHOWN]!r}, which is not loaded: a saved config may name {_ALLOWED}. If you wrote "
        f"that class or function and trust it: --trust-config {module[:_MAX_SHOWN] or 'MODULE'}"
    )


def _object_named(target: str) -> Any:
    """Return what a name stands for, as the host looks it up: the longest module, then attributes; None if nothing."""
    parts = target.split(".")
    for end in range(len(parts), 0, -1):
        try:
            thing: Any = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        # A module may fail in its own way; what it is for is not judged.
        except Exception:
            return None
        for name in parts[end:]:
            thing = getattr(thing, name, None)
        return thing
    return None


def _is_allowed(thing: Any, node: Mapping[str, Any], modules: Sequence[str]) -> bool:
    torch: Any = import_module("torch")
    if isinstance(thing, torch.dtype):
        return not _is_called(node)
    owner = getattr(thing, "__self__", None)
    if getattr(thing, "__name__", "") == _MADE_OF_VALUES and isinstance(owner, type):
        return _is_config_of_transformers(owner)
    module = getattr(thing, "__module__", None) or ""
    if any(is_within(module, root) for root in modules):
        return True
    if isinstance(thing, type):
        return _is_config(thing)
    name = f"{_canonical(module)}.{getattr(thing, '__qualname__', '')}"
    return callable(thing) and not _is_called(node) and any(fnmatchcase(name, pattern) for pattern in _FUNCTIONS)


def _is_called(node: Mapping[str, Any]) -> bool:
    """Return whether the host calls what a node names as it loads it."""
    return node.get(_CALL) is not False and node.get(_PARTIAL) is not True


def _canonical(module: str) -> str:
    """Return the canonical name of a module of the host, whatever package it is installed in."""
    return in_package(module, installed_root(), CANONICAL)


def _is_config(kind: type) -> bool:
    module = _canonical(kind.__module__)
    if issubclass(kind, enum.Enum):
        return module.partition(".")[0] in _PACKAGES
    is_of_host = any(is_within(module, package) for package in _CONFIGS)
    is_other = f"{kind.__module__}.{kind.__qualname__}" in _OTHER_CONFIGS
    return (is_of_host and is_dataclass(kind)) or is_other or _is_config_of_transformers(kind)


def _is_config_of_transformers(kind: type) -> bool:
    transformers = import_module("transformers")
    configs = (transformers.PretrainedConfig, transformers.GenerationConfig)
    return is_within(kind.__module__, "transformers") and issubclass(kind, configs)
