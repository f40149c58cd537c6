"""Typed reads of a run's settings; a missing value or one of the wrong type makes the rule skip the run."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from bridgepack.records import RunConfig
from bridgepack.records.messages import say, setting
from bridgepack.rules.judging.context import CannotJudgeError

_MISSING: Final = object()
#: Sections that every version of the host saves; a config without one is incomplete.
_ALWAYS_SAVED = frozenset({"checkpoint", "ddp", "dist", "logger", "optimizer", "rng", "scheduler", "tokenizer"})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings by dotted path, e.g. `integer("model.context_parallel_size")`.

    Every read raises `CannotJudgeError` if the value is not set or has the wrong type. In a complete config an absent
    field reads as None, because that version of the host has no such field; sections that every version has must
    exist.
    """

    config: RunConfig

    @property
    def loaded_config(self) -> RunConfig:
        """The settings that reads use."""
        return self.config

    def is_stated(self, path: str) -> bool:
        """Return whether the settings have a value at the path, including None."""
        return self._find(path) is not _MISSING

    def value(self, path: str) -> Any:
        """Return the untyped value."""
        value = self._find(path)
        if value is not _MISSING:
            return value
        config, section = self.loaded_config, path.partition(".")[0]
        if not config.is_whole_at(path):
            reason = config.why_unknown(path)
            unset = say("{path} is not set in {place}", path=setting(path), place=config.place)
            raise CannotJudgeError(reason or unset)
        if section in _ALWAYS_SAVED and section not in config.values:
            raise CannotJudgeError(f"{config.place} has no section {section}")
        return None

    def stated_value(self, path: str) -> Any:
        """Return the value, or None if it is not set, for settings whose default in the host is off."""
        return self.value(path) if self.is_stated(path) else None

    def is_set(self, path: str) -> bool:
        """Return whether a setting is set and not None."""
        return self.stated_value(path) is not None

    def is_on(self, path: str) -> bool:
        """Return whether a switch is set and true; an unset switch is off, as in the host's defaults."""
        return self.is_stated(path) and self.flag(path)

    def stated_integer(self, path: str) -> int | None:
        """Return a whole number, or None if it is not set."""
        return self.integer_or_none(path) if self.is_stated(path) else None

    def integer(self, path: str, *, default: int | None = None) -> int:
        """Return a whole number, or `default` if the value is None."""
        value = self.value(path)
        if value is None and default is not None:
            return default
        if type(value) is not int:
            raise unfit(path, value, "not a whole number")
        return value

    def integer_or_none(self, path: str) -> int | None:
        """Return a whole number or None."""
        return None if self.value(path) is None else self.integer(path)

    def number_or_none(self, path: str) -> float | None:
        """Return a number or None."""
        value = self.value(path)
        if value is not None and type(value) not in (int, float):
            raise unfit(path, value, "not a number")
        return None if value is None else float(value)

    def flag(self, path: str) -> bool:
        """Return true or false; None reads as False."""
        value = self.value(path)
        if value is not None and type(value) is not bool:
            raise unfit(path, value, "neither true nor false")
        return bool(value)

    def text_or_none(self, path: str) -> str | None:
        """Return a string or None; a path is converted to a string, an enum member to its name."""
        value = self.value(path)
        if isinstance(value, Mapping) and isinstance(value.get("_name_"), str):
            return str(value["_name_"])
        if isinstance(value, (list, dict, bool, int, float)):
            raise unfit(path, value, "not a string")
        return None if value is None else str(value)

    def mapping(self, path: str) -> Mapping[str, Any]:
        """Return a mapping; None reads as an empty one."""
        value = self.value(path)
        if value is not None and not isinstance(value, Mapping):
            raise unfit(path, value, "not a mapping")
        return value or {}

    def items(self, path: str) -> tuple[Any, ...]:
        """Return a list's items; None reads as an empty list, a single value as a list with one item."""
        value = self.value(path)
        if value is None:
            return ()
        return tuple(value) if isinstance(value, (list, tuple)) else (value,)

    def class_name(self, path: str) -> str | None:
        """Return the class of a nested object without its module, e.g. `GPTSFTDatasetConfig`, or None."""
        value = self.value(path)
        if value is None:
            return None
        target = value.get("_target_") if isinstance(value, Mapping) else None
        if not isinstance(target, str):
            raise CannotJudgeError(say("{path} has no class (_target_)", path=setting(path)))
        return target.rpartition(".")[2]

    def _find(self, path: str) -> Any:
        node: Any = self.loaded_config.values
        for name in path.split("."):
            if not (type(node) is dict or isinstance(node, Mapping)) or name not in node:  # a dict is found out faster
                return None if node is None else _MISSING
            node = node[name]
        return node


def unfit(path: str, value: Any, why: str) -> CannotJudgeError:
    """Return the error for a value of the wrong type, and why it is."""
    return CannotJudgeError(say("{path} is {value!r}, {why}", path=setting(path), value=value, why=why))


_PRECISION, _FP8, _FP4 = "mixed_precision", "model.fp8", "model.fp4"
#: Part of a name -> number format; the first match wins.
_KINDS: Mapping[str, str] = {"nvfp4": "nvfp4", "mxfp8": "mxfp8", "fp8": "fp8", "e4m3": "fp8", "hybrid": "fp8"}


def number_format_of(settings: Settings) -> str:
    """Return the number format of matrix products: `bf16`, `fp8`, `mxfp8` or `nvfp4`.

    Read from `model.fp8`, `model.fp8_recipe`, `model.fp4` and from `mixed_precision`, which is the name of a recipe
    until the host resolves it to a config.

    Raises:
        CannotJudgeError: none of them is set.
    """
    readable_paths = [
        path for path in (_PRECISION, _FP8, _FP4) if settings.config.is_whole_at(path) or settings.is_stated(path)
    ]
    words = settings.value(_PRECISION) if _PRECISION in readable_paths or not readable_paths else None
    if isinstance(words, Mapping):
        words = [words.get("fp8"), words.get("fp8") and words.get("fp8_recipe"), words.get("fp4") and "nvfp4"]
    if _FP8 in readable_paths and settings.value(_FP8):
        words = [words, "fp8", settings.stated_value("model.fp8_recipe")]
    if _FP4 in readable_paths and settings.value(_FP4):
        words = [words, "nvfp4"]
    text = str(words).lower()
    return next((kind for word, kind in _KINDS.items() if word in text), "bf16")


def integer_at(path: str, *, default: int | None = None, instead: str = "") -> cached_property[int]:
    """Return a property: the integer at a path, or at `path` first and then at `instead`."""

    def read(run: Settings) -> int:
        number = run.integer_or_none(path) if instead else None
        return number or run.integer(instead or path, default=default)

    return cached_property(read)


def size_at(path: str) -> cached_property[int]:
    """Return a property: the size at a path, at least 1 and 1 if it is not set."""

    def read(run: Settings) -> int:
        size = run.integer(path, default=1)
        if size < 1:
            raise CannotJudgeError(say("{path} is {size}", path=setting(path), size=size))
        return size

    return cached_property(read)
