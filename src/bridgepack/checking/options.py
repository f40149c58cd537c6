"""How a target is checked, and what an option may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridgepack.config.errors import nearest_name, shown
from bridgepack.config.load import parse_overrides
from bridgepack.errors import ConfigError
from bridgepack.rules.engine.subject import Environment

_INT32_MAX = 2**31 - 1
_LOSS_MODES = ("assistant", "last_turn", "completion", "full")


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """How a target is checked.

    Attributes:
        artifact: folder of the packs that the run will read, a packed file, or a pattern.
        world_size: number of GPUs; by default what the settings say.
        bridge_version: version of megatron-bridge to judge for; by default that of the environment, else the target
            of this package.
        environment: the environment of the run; rules on it are skipped without.
        overrides: dotted path -> value.
        select: codes, beginnings of codes or names of the rules to run; all by default.
        ignore: the same, of rules not to run.
        given: facts about an artifact without a manifest, e.g. `{"eos_token_id": 2}`.
        looks_at_files: whether the paths in the settings are looked up on this machine.
        num_workers: most processes for an artifact.
        max_examples: places named per finding.
        progress: told how far the artifact is.
    """

    artifact: Path | None = None
    world_size: int | None = None
    bridge_version: str | None = None
    environment: Environment | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    select: Sequence[str] = ()
    ignore: Sequence[str] = ()
    given: Mapping[str, Any] = field(default_factory=dict)
    looks_at_files: bool = True
    num_workers: int = 1
    max_examples: int = 5
    progress: Any = None

    def __post_init__(self) -> None:
        """Accept options of the right kinds.

        Raises:
            ConfigError: naming the first that is not.
        """
        for name, (is_allowed, allowed) in _OPTIONS.items():
            value = getattr(self, name)
            if not is_allowed(value):
                raise ConfigError(f"{name} is {shown(value)}; allowed: {allowed}.")
        checked_given(self.given)


def parse_given(items: Sequence[str]) -> dict[str, Any]:
    """Return `name=value` texts as facts about an artifact.

    Raises:
        ConfigError: a name or a value is nothing known.
    """
    for item in items:
        if not item.partition("=")[0].strip() or "=" not in item:
            raise ConfigError(f"--given {shown(item)}; allowed: name=value, e.g. --given packed_sequence_size=4096.")
    return checked_given(parse_overrides(tuple(items), option="--given"))


def checked_given(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts about an artifact as `CheckContext` takes them.

    Raises:
        ConfigError: a name or a value is nothing known.
    """
    for name, value in given.items():
        if name not in _GIVEN:
            nearest = nearest_name(str(name), _GIVEN)
            hint = f"Did you mean {nearest}?" if nearest else "Use one of these."
            raise ConfigError(f"--given {name}; allowed: {', '.join(_GIVEN)}. {hint}")
        is_allowed, allowed = _GIVEN[name]
        if not is_allowed(value):
            raise ConfigError(f"--given {name} is {shown(value)}; allowed: {allowed}.")
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}


def named_environment(name: str | Path | None) -> Environment | None:
    """Return the environment of `here`, or of a file that lists distributions; None for None.

    Raises:
        ConfigError: the file cannot be read, or lists nothing.
    """
    if name is None:
        return None
    from bridgepack.bridge.environment import READABLE, environment_from_file, environment_here

    if not str(name).strip():
        raise ConfigError(f"--environment is {str(name)!r}; allowed: here, or a file with {READABLE}.")
    return environment_here() if str(name) == "here" else environment_from_file(Path(name))


def _is_integer(value: Any, *, least: int, most: int = _INT32_MAX) -> bool:
    return type(value) is int and least <= value <= most


def _is_size(value: Any) -> bool:
    return _is_integer(value, least=1)


def _is_token_id(value: Any) -> bool:
    return _is_integer(value, least=0)


def _are_token_ids(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(map(_is_token_id, value))


def _are_named_token_ids(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(text, str) and _is_token_id(token) for text, token in value.items()
    )


def _are_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(text, str) for text in value)


def _has_text_keys(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)


def _optional(is_allowed: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or is_allowed(value)


_Kind = tuple[Callable[[Any], bool], str]
_SIZE = "a whole number of at least 1"
_TOKEN_ID = "a token id, a whole number of at least 0"
_SELECTORS: _Kind = (_are_texts, "a list of codes such as BP101, beginnings such as BP1, or names")
_OPTIONS: Mapping[str, _Kind] = {
    "artifact": (_optional(lambda value: isinstance(value, Path)), "a path"),
    "world_size": (_optional(_is_size), "the number of GPUs, at least 1"),
    "bridge_version": (_optional(lambda value: isinstance(value, str)), 'a text such as "0.6.2"'),
    "environment": (
        _optional(lambda value: isinstance(value, Environment)),
        "an Environment, as bridgepack.bridge.environment.environment_here() gives it",
    ),
    "overrides": (_has_text_keys, "a mapping, dotted path -> value"),
    "select": _SELECTORS,
    "ignore": _SELECTORS,
    "given": (_has_text_keys, "a mapping, name -> value"),
    "looks_at_files": (lambda value: type(value) is bool, "True or False"),
    "num_workers": (_is_size, _SIZE),
    "max_examples": (_is_size, _SIZE),
    "progress": (
        _optional(lambda value: all(callable(getattr(value, name, None)) for name in ("start", "advance", "finish"))),
        "an object with start(), advance() and finish()",
    ),
}
_GIVEN: Mapping[str, _Kind] = {
    "packed_sequence_size": (_is_size, f"{_SIZE}, in runtime tokens"),
    "pad_seq_to_mult": (_is_size, _SIZE),
    "eos_token_id": (_is_token_id, _TOKEN_ID),
    "bos_token_id": (_is_token_id, _TOKEN_ID),
    "vocab_size": (_is_size, _SIZE),
    "padded_vocab_size": (_is_size, _SIZE),
    "loss_mode": (lambda value: value in _LOSS_MODES, ", ".join(_LOSS_MODES)),
    "end_of_turn_ids": (_are_token_ids, "a list of token ids, e.g. [151645]"),
    "never_trained": (_are_named_token_ids, "a mapping of texts to token ids, e.g. {<think>: 151667}"),
    "expects_bos": (lambda value: type(value) is bool, "true or false"),
}
