"""Settings of one quantity, of which a run takes one: a file may set one, and an override replaces the others."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePath
from typing import Any

from bridgepack.config.errors import quote
from bridgepack.config.recipe.host_paths import FIELDS, PACK_PATHS
from bridgepack.errors import ConfigError, Problem
from bridgepack.host import HostRelease
from bridgepack.host.names import canonical_name
from bridgepack.records.checks import OVERRIDES
from bridgepack.records.results import leaves, put

_OVERRIDE = f"{OVERRIDES}."
_VARIABLE, _VARIABLE_PATH = "environment.", "env_vars."
#: How much of a source is used.
_AMOUNT = re.compile(r"(data\.(?:train|validation)(?:\.\w+)*)\.(?:weight|epochs)")
#: Field that is off with another value than null -> that value.
_NO_VALUE: Mapping[str, Any] = {"data.validation_fraction": 0.0, "method.kind": "full"}
#: Quantities with several fields of a recipe, or several paths of the host that do not say the same.
_SEVERAL = (
    ("batch.global_batch_size", "batch.tokens_per_step", "train.global_batch_size"),
    (
        *("schedule.num_epochs", "schedule.train_iters"),
        *("train.num_epochs", "train.train_iters", "train.train_samples"),
    ),
    (
        *("schedule.warmup_fraction", "scheduler.lr_warmup_fraction"),
        *("scheduler.lr_warmup_iters", "scheduler.lr_warmup_samples"),
    ),
    ("scheduler.lr_decay_iters", "scheduler.lr_decay_samples"),
    ("scheduler.lr_wsd_decay_iters", "scheduler.lr_wsd_decay_samples"),
    ("data.validation", "data.validation_fraction"),
    ("method.kind", "peft"),
    *(("artifact", path) for path in PACK_PATHS),
    *((f"schedule.{name}", f"validation.{name}", f"train.{name}") for name in ("eval_iters", "eval_interval")),
    *((f"tokenizer.{name}", f"tokenizer.hf_tokenizer_kwargs.{name}") for name in ("revision", "trust_remote_code")),
)
#: Paths whose field decides them by default, and which may differ from it: a seed of the loader, a checkpoint to resume
#: from, a model's id beside a recipe of the host, details of a section, another unit.
_OTHER_MEANING = frozenset(
    {
        *("dataset.seed", "checkpoint.load", "model.hf_model_id", "model.name", "dataset.preprocessing", "peft"),
        *("scheduler.lr_warmup_iters", "tokenizer.chat_template"),
    }
)
#: Path of the host -> field of a recipe that says the same in the same unit.
SAME: Mapping[str, str] = {
    path: field for path, field in FIELDS.items() if path not in _OTHER_MEANING and not field.startswith("environment")
}
#: Name -> the name of its quantity in whose unit it is, beside those of `SAME`. The host's epochs end with fillers;
#: a recipe's become a number of steps, of which the last takes packs of the next epoch.
_UNITS: Mapping[str, str] = {
    "train.num_epochs": "train.num_epochs",
    **{f"train.{name}": f"schedule.{name}" for name in ("eval_iters", "eval_interval")},
    **{f"tokenizer.hf_tokenizer_kwargs.{name}": f"tokenizer.{name}" for name in ("revision", "trust_remote_code")},
}
#: Fields that no path of the host says in their units.
_ALONE = ("batch.tokens_per_step", "artifact")
#: Path of the host that is off with another value than null -> that value.
OFF: Mapping[str, Any] = {"scheduler.lr_warmup_iters": 0, "scheduler.lr_warmup_samples": 0}


def _quantities() -> Mapping[str, tuple[tuple[str, ...], ...]]:
    """Return field of a recipe, or path of the host -> every name of each of its quantities."""
    pairs: dict[str, tuple[str, ...]] = {}
    for path, field in SAME.items():
        if field not in chain.from_iterable(_SEVERAL):
            pairs[field] = (*pairs.get(field, (field,)), path)
    groups = [*pairs.values(), *_SEVERAL]
    return {name: tuple(group for group in groups if name in group) for name in chain.from_iterable(groups)}


_QUANTITIES = _quantities()


@dataclass(frozen=True, slots=True)
class Written:
    """A setting that a user wrote."""

    place: str  #: as it was written: a field of the recipe, or an override under the release's name
    name: str  #: the field, or the canonical path of the host
    value: Any

    @property
    def quantities(self) -> tuple[tuple[str, ...], ...]:
        """Every name of each of its quantities that have several; an artifact's folder is of several quantities."""
        if self.name.startswith((_VARIABLE, _VARIABLE_PATH)):
            variable = self.name.partition(".")[2]
            return ((f"{_VARIABLE}{variable}", f"{_VARIABLE_PATH}{variable}"),)
        if (amount := _AMOUNT.fullmatch(self.name)) is not None:
            return (tuple(f"{amount[1]}.{name}" for name in ("weight", "epochs")),)
        return _QUANTITIES.get(self.name, ())

    def is_rival_of(self, setting: Written) -> bool:
        """Return whether another setting is of a quantity of this one."""
        return not set(self.quantities).isdisjoint(setting.quantities)

    @property
    def is_override(self) -> bool:
        """Whether it stands in the recipe's section of the host's own settings."""
        return self.place.startswith(_OVERRIDE)

    @property
    def is_off(self) -> bool:
        """Whether its value is the host's for none."""
        return bool(OFF.get(self.name) == self.value)

    def says_the_same(self, rival: Written) -> bool:
        """Return whether another setting of the quantity says the same value in the same unit."""
        folder, path = sorted((self, rival), key=lambda setting: setting.name in PACK_PATHS)
        if folder.name == "artifact" and path.name in PACK_PATHS:
            return PurePath(str(folder.value), PACK_PATHS[path.name]) == PurePath(str(path.value))
        return _unit(self.name) == _unit(rival.name) and bool(_plain(self.value) == _plain(rival.value))

    def text(self) -> str:
        """Return the setting with its value, for messages."""
        return f"{self.place} is {'null' if self.value is None else quote(self.value)}"


@dataclass(frozen=True, slots=True)
class Replaced:
    """A setting of a recipe in whose place an override stands."""

    old: Written
    new: Written

    @property
    def moves(self) -> bool:
        """Whether the override is of the host's path, and the setting is the recipe's field of the same meaning."""
        is_of_host = self.new.is_override and not self.old.is_override
        return is_of_host and SAME.get(self.new.name) == self.old.name == _unit(self.new.name)

    def text(self) -> str:
        """Return what happened, in one line."""
        return f"{self.old.place} {quote(self.old.value)} is replaced by {self.new.place} {quote(self.new.value)}"


def refuse_two_settings(values: Mapping[str, Any], release: HostRelease) -> None:
    """Refuse a recipe, as its author wrote it, with two settings of one quantity that do not say the same.

    Raises:
        ConfigError: naming both.
    """
    settings = list(settings_in(values, release))
    _refuse_pairs([*settings, *_nulls_beside(settings, values, release)])


def with_changes[T](
    values: Mapping[str, Any], changes: Mapping[str, Any], release: HostRelease, make: Callable[[dict[str, Any]], T]
) -> tuple[T, tuple[Replaced, ...]]:
    """Return a recipe without what its changes replace, and what they replaced.

    An override of the host's path moves to the recipe's field of the same meaning if the recipe has it, so that builds
    read it, too; if the field does not take the value, the field goes.

    Args:
        values: plain values of the recipe, as its author wrote it, in which the changes stand already.
        changes: dotted path -> value.
        release: of the recipe.
        make: makes a recipe of plain values, or raises ConfigError.

    Raises:
        ConfigError: two changes are of one quantity; or as `make` raises it.
    """
    settings = list(settings_in(values, release))
    new = [setting for setting in settings if any(_lies_at(setting.place, path) for path in changes)]
    replacements = tuple(
        Replaced(rival, setting)
        for setting in new
        for rival in settings
        if rival not in new and rival.is_rival_of(setting) and not rival.says_the_same(setting)
    )
    recipe = _recipe_without(make, values, replacements)
    _refuse_pairs(new)
    return recipe, replacements


def _recipe_without[T](
    make: Callable[[dict[str, Any]], T], values: Mapping[str, Any], replacements: Sequence[Replaced]
) -> T:
    try:
        return make(_without(values, replacements, moves=True))
    except ConfigError:
        if any(pair.moves for pair in replacements):
            with suppress(ConfigError):
                return make(_without(values, replacements, moves=False))
        raise


def _refuse_pairs(settings: Iterable[Written]) -> None:
    by_quantity: dict[tuple[str, ...], list[Written]] = {}
    for setting in settings:
        for quantity in setting.quantities:
            by_quantity.setdefault(quantity, []).append(setting)
    for group in by_quantity.values():
        is_of_host = all(setting.is_override for setting in group)
        first, *rivals = [setting for setting in group if not (is_of_host and setting.is_off)] or group
        for rival in rivals:
            if not rival.says_the_same(first):
                message = f"{first.text()}, and {rival.text()}; a run takes one of them. Remove one."
                error = ConfigError(message)
                error.problems = (Problem(field=rival.place, message=message),)
                raise error


def _without(values: Mapping[str, Any], replacements: Iterable[Replaced], *, moves: bool) -> dict[str, Any]:
    result: dict[str, Any] = copy.deepcopy(dict(values))
    for pair in replacements:
        if moves and pair.moves:
            put(result, pair.old.name, pair.new.value)
            _remove(result, pair.new.place)
        else:
            _remove(result, pair.old.place)
    return result


def without_idle(values: Mapping[str, Any], defaults: Mapping[str, Any], release: HostRelease) -> dict[str, Any]:
    """Return the plain values of a recipe with every field, without defaults beside which another setting stands.

    Args:
        values: plain values with every field, as a manifest has them.
        defaults: field -> default.
        release: of the recipe.
    """
    settings = list(settings_in(values, release))
    result: dict[str, Any] = copy.deepcopy(dict(values))
    for setting in settings:
        has_rival = any(rival.is_rival_of(setting) and rival is not setting for rival in settings)
        is_default = setting.name in defaults and _plain(defaults[setting.name]) == _plain(setting.value)
        if has_rival and is_default and not setting.is_override:
            _remove(result, setting.place)
    return result


def with_field(values: dict[str, Any], path: str, release: HostRelease) -> bool:
    """Say in a field of a recipe what an override says, and return whether there is such a field.

    Args:
        values: plain values of the recipe; changed in place.
        path: canonical path of the override.
        release: of the recipe.
    """
    field = SAME.get(path)
    if field is None:
        return False
    override = overrides_in(values[OVERRIDES], release)[path]
    for name in chain.from_iterable(override.quantities):
        _remove(values, name)
    put(values, field, override.value)
    return True


def overrides_in(section: Mapping[str, Any], release: HostRelease) -> Mapping[str, Written]:
    """Return canonical path -> override with a value, of a recipe's section of them."""
    return {
        canonical_name(release, path): Written(f"{_OVERRIDE}{path}", canonical_name(release, path), value)
        for path, value in leaves(section)
        if value is not None
    }


def rivals_of(path: str) -> tuple[str, ...]:
    """Return the other paths of the host that a setting of the host replaces; none for most."""
    no_rivals = {path, *FIELDS.values(), *_ALONE}
    return tuple(name for name in chain.from_iterable(_QUANTITIES.get(path, ())) if name not in no_rivals)


def value_of_rival(path: str, override: str, value: Any) -> Any:
    """Return what a rival of an override's path is: the override's value in the same unit, else the host's for none.

    Example: `dataset.seq_length` is 4096 beside `model.seq_length` 4096, and `train.num_epochs` null beside
    `train.train_iters` 500.
    """
    return value if _unit(path) == _unit(override) else OFF.get(path)


def settings_in(values: Mapping[str, Any], release: HostRelease) -> Iterator[Written]:
    """Yield the settings, with a value, of quantities that have several names."""
    fields = {name: section for name, section in values.items() if name != OVERRIDES}
    data = fields.get("data")
    validation = [("data.validation", data.get("validation"))] if isinstance(data, Mapping) else []
    settings = [
        Written(path, path, value) for path, value in (*validation, *_leaves(fields)) if not is_none(path, value)
    ]
    unique = {setting.place: setting for setting in (*settings, *_overrides(values, release))}
    yield from (setting for setting in unique.values() if setting.quantities)


def is_none(field: str, value: Any) -> bool:
    """Return whether a value of a field says nothing."""
    return value is None or bool(_NO_VALUE.get(field) == value)


def _leaves(section: Mapping[str, Any] | Sequence[Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted path, value) of a section; of a list with sections, by the number of the entry."""
    for name, value in section.items() if isinstance(section, Mapping) else enumerate(section):
        is_list = isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value)
        if (isinstance(value, Mapping) and value) or is_list:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _overrides(values: Mapping[str, Any], release: HostRelease) -> Iterator[Written]:
    section = values.get(OVERRIDES)
    for path, value in leaves(section if isinstance(section, Mapping) else {}):
        if value is not None:
            yield Written(f"{_OVERRIDE}{path}", canonical_name(release, path), value)


def _nulls_beside(settings: Iterable[Written], values: Mapping[str, Any], release: HostRelease) -> Iterator[Written]:
    """Yield the overrides that are null, of paths whose field has a value: the run would not have that value."""
    fields, section = {setting.name for setting in settings}, values.get(OVERRIDES)
    for path, value in leaves(section if isinstance(section, Mapping) else {}):
        name = canonical_name(release, path)
        if value is None and SAME.get(name, "method.kind" if name == "peft" else "") in fields:
            yield Written(f"{_OVERRIDE}{path}", name, None)


def _lies_at(place: str, path: str) -> bool:
    return place == path or place.startswith(f"{path}.")


def _unit(name: str) -> str:
    return _UNITS.get(name, SAME.get(name, name)).replace(_VARIABLE_PATH, _VARIABLE)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _remove(values: Any, path: str) -> None:
    """Remove a path, and the sections that are empty then."""
    first, _, below = path.partition(".")
    name = int(first) if isinstance(values, list) else first
    if isinstance(values, dict) and name not in values:
        return
    if below:
        _remove(values[name], below)
    if isinstance(values, dict) and (not below or values[name] == {}):
        del values[name]
