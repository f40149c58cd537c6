"""A recipe with every value that it sets or that follows from it, and where each comes from."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from bridgepack.bridge.artifact_paths import folder_of_packs, packs_in
from bridgepack.bridge.bases import base_of
from bridgepack.bridge.plain import value_at
from bridgepack.bridge.recipe import run_of_recipe
from bridgepack.bridge.wiring import OVERRIDES, Packs, Setting, host_settings
from bridgepack.bridge.wiring.settings import Scope
from bridgepack.config.document import stated_values
from bridgepack.config.recipe.quantities import SAME, is_none, settings_in
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.forecast import forecast_packs
from bridgepack.data.tokenizers.trust import refuse_tokenizer_code
from bridgepack.errors import BridgepackError, ConfigError

#: Sizes by which the GPUs are divided among copies of the model.
_SIZES = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
_FORECAST = "forecast"
plain_value = partial(TypeAdapter(Any).dump_python, mode="json", exclude_unset=True, fallback=str)


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldValue:
    """One field of a recipe."""

    field: str  #: dotted path
    value: Any  #: plain value
    origin: str  #: `recipe` if set in the recipe, else `default`; or the other setting that decides it


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseChange:
    """A value of the base recipe that the recipe does not set, and that is changed all the same."""

    path: str  #: dotted, in the ConfigContainer
    base: Any  #: the base's value
    value: Any  #: the run's
    because: str  #: why


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedView:
    """A recipe with every value and its origin."""

    recipe: SFTRecipe  #: the recipe
    fields: tuple[FieldValue, ...]  #: every field
    derived: Mapping[str, Mapping[str, Any]]  #: values that `resolve` computes: name -> value and reason
    settings: tuple[Setting, ...]  #: what is set in Megatron-Bridge
    base_changes: tuple[BaseChange, ...]  #: those of them that change a value of the base unasked
    packs: str  #: origin of the number of packs
    num_packs: Mapping[str, int]  #: split -> number of packs; empty if unknown

    def to_dict(self) -> dict[str, Any]:
        """Return the view as plain values with stable keys."""
        return {
            "name": self.recipe.name,
            "packs": {"num_packs": dict(self.num_packs), "because": self.packs},
            "fields": [asdict(entry) for entry in self.fields],
            "derived": [{"name": name, **item, "origin": "derived"} for name, item in self.derived.items()],
            "settings": [
                {
                    "path": entry.path,
                    "value": plain_value(entry.value),
                    "origin": entry.origin,
                    "field": entry.field or None,
                    "because": entry.because or None,
                }
                for entry in self.settings
            ],
            "base_changes": [
                {**asdict(change), "base": plain_value(change.base), "value": plain_value(change.value)}
                for change in self.base_changes
            ],
            "replacements": [pair.text() for pair in self.recipe.replacements],
        }


def resolved_view(recipe: SFTRecipe, *, artifact: Path | None = None, is_trusted: bool = False) -> ResolvedView:
    """Return a recipe with every value, based on the packs of an artifact if one exists, else on a forecast.

    `is_trusted` lets code run that comes with the tokenizer.

    Raises:
        ConfigError: the folder does not exist, or packed_sequence_size is not a multiple of pad_seq_to_mult.
        ArtifactError: the manifest cannot be read.
    """
    packs, because = _packs(recipe, artifact, is_trusted=is_trusted)
    settings = tuple(_settings(recipe, packs, is_forecast=because.startswith(_FORECAST)))
    return ResolvedView(
        recipe=recipe,
        fields=tuple(map(_Deciders.of(recipe, settings).effective, _fields(recipe))),
        derived={**recipe.resolve().explain(), **_shares(recipe)},
        settings=settings,
        base_changes=tuple(_base_changes(recipe, settings)),
        packs=because,
        num_packs=packs.num_packs if packs else {},
    )


def _packs(recipe: SFTRecipe, artifact: Path | None, *, is_trusted: bool) -> tuple[Packs | None, str]:
    if recipe.packing.mode != "offline":
        return None, f"none: packing.mode is {recipe.packing.mode}"
    if artifact is not None and not artifact.is_dir():
        raise ConfigError(f"--artifact is {str(artifact)!r}; there is no such folder. Build it, or give another.")
    folder = folder_of_packs(recipe, artifact)
    if folder is None:
        return None, "counted when the run starts: bridge_overrides name packs of no artifact"
    if folder.is_dir():
        packs = packs_in(folder)
        if packs.num_packs:
            return packs, f"counted in {folder}"
    if recipe.chooses_rows:
        return None, "which sequences are used depends on all rows (data.mixture, data.deduplicate): build counts them"
    if Path(recipe.tokenizer.name_or_path).is_dir():
        refuse_tokenizer_code(recipe, is_trusted=is_trusted)
        projection = _project_packs(recipe)
        if projection is not None:
            return Packs(folder=str(folder), num_packs=projection), f"{_FORECAST} from tokenised rows, as in `preview`"
    forecast = forecast_packs(recipe)
    packs = Packs(folder=str(folder), num_packs=forecast.num_packs)
    return (packs if forecast.num_packs else None), forecast.because


def _project_packs(recipe: SFTRecipe) -> dict[str, int] | None:
    from bridgepack.planning.preview import preview_recipe  # loads a tokenizer, which is rarely installed here

    try:
        num_packs = preview_recipe(recipe, num_rows=0).num_packs or {}
    except BridgepackError:
        return None
    return {split: count for split, count in num_packs.items() if count} or None


def _shares(recipe: SFTRecipe) -> dict[str, dict[str, Any]]:
    scope = Scope.of(recipe, None)
    size = scope.data_parallel_size()
    if size is None:
        return {}
    batch = next(entry.value for entry in host_settings(recipe) if entry.path == "train.global_batch_size")
    micro, topology = scope.recipe.batch.micro_batch_size, scope.recipe.parallelism
    product = " x ".join(str(getattr(topology, name)) for name in _SIZES)
    because = f"{topology.num_gpus} GPUs / ({product} tensor x pipeline x context ranks)"
    shares = {"data_parallel_size": {"value": size, "because": because}}
    if batch % (micro * size) == 0:
        because = f"global batch of {batch} / (micro batch of {micro} x {size} data-parallel ranks)"
        shares["gradient_accumulation_steps"] = {"value": batch // (micro * size), "because": because}
    return shares


def _settings(recipe: SFTRecipe, packs: Packs | None, *, is_forecast: bool) -> Iterator[Setting]:
    without = {setting.path: setting for setting in host_settings(recipe)}
    for setting in run_of_recipe(recipe, packs).settings:
        counts = not setting.path.startswith("dataset.") and without.get(setting.path) != setting
        of_packs = is_forecast and counts and setting.path in without
        yield replace(setting, because=f"{setting.because}; {_FORECAST}") if of_packs else setting


def _base_changes(recipe: SFTRecipe, settings: Iterable[Setting]) -> Iterator[BaseChange]:
    base, of_recipe = base_of(recipe), {setting.path: setting for setting in host_settings(recipe)}
    for setting in settings:
        written_setting = of_recipe.get(setting.path)
        if written_setting is None or (written_setting.origin == "recipe" and setting.origin == "derived"):
            before = value_at(base, setting.path) if written_setting is None else written_setting.value
            yield BaseChange(path=setting.path, base=before, value=setting.value, because=setting.because)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Deciders:
    """What decides a field of a recipe in its place."""

    rivals: Mapping[str, str]  #: field -> the other setting of its quantity that is written
    settings: Mapping[str, Setting]  #: field -> the run's setting of the same meaning

    @classmethod
    def of(cls, recipe: SFTRecipe, settings: Iterable[Setting]) -> "_Deciders":
        """Return what decides the fields of a recipe."""
        items = {item.place: item for item in settings_in(stated_values(recipe), recipe.release)}
        rivals = {
            name: item.place
            for item in items.values()
            for names in item.quantities
            for name in names
            if name not in items or not item.says_the_same(items[name])
        }
        by_field = {SAME[setting.path]: setting for setting in settings if setting.path in SAME}
        return cls(rivals=rivals, settings=by_field)

    def effective(self, field: FieldValue) -> FieldValue:
        """Return a field with the value that counts, and where it comes from."""
        rival, setting = self.rivals.get(field.field, field.field), self.settings.get(field.field)
        value = None if setting is None else plain_value(setting.value)
        if field.value is None or is_none(field.field, field.value):
            return field
        if rival != field.field and (field.origin == "default" or rival.startswith(f"{OVERRIDES}.")):
            return replace(field, value=value, origin=rival)
        is_other = setting is not None and setting.origin == "derived" and value not in (None, field.value)
        return replace(field, value=value, origin=f"derived: {setting.because}") if is_other and setting else field


def _fields(section: BaseModel, prefix: str = "") -> Iterator[FieldValue]:
    for name in type(section).model_fields:
        value, path = getattr(section, name), f"{prefix}{name}"
        if isinstance(value, BaseModel):
            yield from _fields(value, f"{path}.")
        else:
            origin = "recipe" if name in section.model_fields_set else "default"
            yield FieldValue(field=path, value=plain_value(value), origin=origin)
