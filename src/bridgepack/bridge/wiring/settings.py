"""A setting of the host, and the inputs that settings are derived from."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from bridgepack import geometry
from bridgepack.config.document import stated_values
from bridgepack.config.recipe.host_paths import SPECS as SPECS
from bridgepack.config.recipe.host_paths import TRAIN_PATH
from bridgepack.config.recipe.pack_paths import pack_paths_in
from bridgepack.config.recipe.quantities import Written, overrides_in, with_field
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.records.checks import OVERRIDES as OVERRIDES


@dataclass(frozen=True, kw_only=True, slots=True)
class Packs:
    """The packs of a run, from their manifest."""

    folder: str
    num_packs: Mapping[str, int]  #: split -> number of packs


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One value in the host's config."""

    path: str  #: dotted, in the ConfigContainer
    value: Any
    #: set in the recipe, a default of the recipe's schema, or derived from other values
    origin: Literal["recipe", "default", "derived"]
    field: str = ""  #: field of the recipe that decides it; empty if no single field does
    because: str = ""  #: derivation, for derived values

    @property
    def place(self) -> str:
        """The field of the recipe, or the override, that sets it."""
        return self.field or f"{OVERRIDES}.{self.path}"


def with_overrides_in_fields(recipe: SFTRecipe) -> SFTRecipe:
    """Return a recipe with a field's value from the override that says the same quantity, where the field takes it."""
    values = stated_values(recipe) if recipe.bridge_overrides else {}
    for path in overrides_in(recipe.bridge_overrides, recipe.release):
        if with_field(values, path, recipe.release):
            with suppress(ConfigError):
                recipe = SFTRecipe.from_values(values)
            values = stated_values(recipe)
    return recipe


def derived_setting(path: str, value: Any, because: str, field: str = "") -> Setting:
    """Return a setting that is derived from others."""
    return Setting(path=path, value=value, origin="derived", field=field, because=because)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """The inputs that settings are derived from."""

    recipe: SFTRecipe  #: what overrides say of a field stands in the field
    packs: Packs | None  #: the packs of the run; None if unknown
    multiple: int  #: that a build aligns sequences to, which reads fields alone

    @classmethod
    def of(cls, recipe: SFTRecipe, packs: Packs | None) -> "Scope":
        """Return the scope of a recipe."""
        return cls(recipe=with_overrides_in_fields(recipe), packs=packs, multiple=recipe.parallelism.multiple)

    @property
    def has_validation(self) -> bool:
        """Whether there is validation data."""
        return self.recipe.data.validation is not None or self.recipe.data.validation_fraction > 0

    def reads_other_packs(self, folder: str) -> bool:
        """Return whether an override names other training packs than those of a folder."""
        override = pack_paths_in(self.recipe.bridge_overrides, self.recipe.release).get(TRAIN_PATH)
        return override is not None and not override.says_the_same(Written("artifact", "artifact", folder))

    def num_packs(self, split: str) -> int:
        """Return the number of packs of a split; 0 if unknown."""
        return self.packs.num_packs.get(split, 0) if self.packs else 0

    def data_parallel_size(self, *, evaluates: bool = False) -> int | None:
        """Return the number of model copies, or None if the number of GPUs is unknown or not divisible."""
        topology = self.recipe.parallelism
        context = (topology.eval_context_parallel_size if evaluates else None) or topology.context_parallel_size
        if topology.num_gpus is None:
            return None
        size = geometry.data_parallel_size(
            world_size=topology.num_gpus,
            tensor_model_parallel_size=topology.tensor_model_parallel_size,
            pipeline_model_parallel_size=topology.pipeline_model_parallel_size,
            context_parallel_size=context,
        )
        return size or None

    def setting(self, path: str, field: str, value: Any = ...) -> Setting:
        """Return a setting that one field decides.

        Args:
            path: path of the host.
            field: dotted field of the recipe.
            value: value for the host (default: the field's value).
        """
        section: Any = self.recipe
        is_set = True
        *sections, leaf = field.split(".")
        for name in sections:
            is_set = is_set and name in section.model_fields_set
            section = getattr(section, name)
        origin: Literal["recipe", "default"] = "recipe" if is_set and leaf in section.model_fields_set else "default"
        setting_value = getattr(section, leaf) if value is ... else value
        return Setting(path=path, value=setting_value, origin=origin, field=field)

    def settings(self, fields: Mapping[str, str], *, if_set: bool = False) -> Iterator[Setting]:
        """Yield a setting for each (host path -> recipe field); with `if_set`, null fields are skipped."""
        for path, field in fields.items():
            setting = self.setting(path, field)
            if setting.value is not None or not if_set:
                yield replace(setting, value=list(setting.value)) if isinstance(setting.value, tuple) else setting
