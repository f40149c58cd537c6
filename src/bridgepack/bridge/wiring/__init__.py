"""The settings of a recipe in Megatron-Bridge: under the host's paths, each with the origin of its value."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bridgepack import geometry
from bridgepack.bridge.wiring.data import LOSS_SETTINGS, dataset_settings, topology_settings
from bridgepack.bridge.wiring.settings import OVERRIDES, SPECS, Packs, Scope, Setting, derived_setting
from bridgepack.bridge.wiring.training import (
    batch_settings,
    bookkeeping_settings,
    kernel_settings,
    optimizer_settings,
    schedule_settings,
)
from bridgepack.config.recipe.quantities import rivals_of, value_of_rival
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.host.names import canonical_name
from bridgepack.records import TRAIN

__all__ = [
    "LOSS_SETTINGS",
    "OVERRIDES",
    "SPECS",
    "Packs",
    "RunLength",
    "Setting",
    "derived_setting",
    "host_settings",
    "run_length",
]

#: Maximum depth, more than any config of the host; stops cycles.
_MAX_DEPTH = 12
_SEQUENCE, _TENSOR = "model.sequence_parallel", "model.tensor_model_parallel_size"
#: Source: megatron/bridge/models/transformer_config.py of 0.6.2, finalize.
ONE_TENSOR_RANK = "there is one tensor-parallel rank, so Megatron-Bridge switches it off"
_SECTIONS = (
    topology_settings,
    dataset_settings,
    batch_settings,
    schedule_settings,
    optimizer_settings,
    kernel_settings,
    bookkeeping_settings,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLength:
    """Length of a recipe's run."""

    num_packs: int  #: training packs
    global_batch_size: int  #: packs per step
    num_steps: int  #: steps of the whole run
    field: str  #: field of the recipe that sets the packs per step
    tokens_per_pack: int  #: token slots of a pack
    smallest_batch: int  #: packs of which every step takes a multiple: a micro batch for each data-parallel rank

    @property
    def lack(self) -> str:
        """Why training cannot start: `fewer packs (40) than one step needs (128)`; empty if it can."""
        packs, batch = self.num_packs, self.global_batch_size
        return f"fewer packs ({packs:,}) than one step needs ({batch:,})" if packs < batch else ""

    @property
    def most_packs_per_step(self) -> int:
        """Largest number of packs per step with which training can start; 0 if there is none."""
        return geometry.floor_to_multiple(self.num_packs, self.smallest_batch)

    def at_most(self, packs: int) -> str:
        """Return the field and its largest value for some packs: `batch.tokens_per_step to at most 20480 (5 packs)`."""
        noun = "pack" if packs == 1 else "packs"
        is_tokens = self.field == "batch.tokens_per_step"
        value = f"{packs * self.tokens_per_pack} ({packs} {noun})" if is_tokens else f"{packs} {noun}"
        return f"{self.field} to at most {value}"


def host_settings(recipe: SFTRecipe, *, packs: Packs | None = None) -> tuple[Setting, ...]:
    """Return every setting of a recipe, each path once; they override those of the base recipe.

    Nothing is judged here: a recipe that breaks a rule has settings that break it.

    Args:
        recipe: the recipe.
        packs: the packs of the run; without them, settings that depend on their number are left to the host.

    Raises:
        ConfigError: `bridge_overrides` nest too deep.
    """
    scope = Scope.of(recipe, packs)
    settings = {setting.path: setting for section in _SECTIONS for setting in section(scope)}
    overrides = {
        canonical_name(recipe.release, name): Setting(
            path=canonical_name(recipe.release, name), value=value, origin="recipe", field=f"{OVERRIDES}.{name}"
        )
        for name, value in _leaves(recipe.bridge_overrides)
    }
    for override in overrides.values():
        for path in rivals_of(override.path) if override.value is not None else ():
            if path in settings and path not in overrides:
                value = value_of_rival(path, override.path, override.value)
                settings[path] = derived_setting(path, value, f"{override.field} is set")
    settings |= overrides
    if settings[_SEQUENCE].value is True and settings[_TENSOR].value == 1:
        settings[_SEQUENCE] = replace(settings[_SEQUENCE], value=False, origin="derived", because=ONE_TENSOR_RANK)
    return tuple(settings.values())


def run_length(recipe: SFTRecipe, packs: Packs) -> RunLength:
    """Return the length of a run; `packs` must have at least one training pack."""
    settings = {setting.path: setting for setting in host_settings(recipe, packs=packs)}
    batch = settings["train.global_batch_size"]
    return RunLength(
        num_packs=packs.num_packs[TRAIN],
        global_batch_size=batch.value,
        num_steps=settings["train.train_iters"].value,
        field=batch.place,
        tokens_per_pack=recipe.packing.packed_sequence_size,
        smallest_batch=settings["train.micro_batch_size"].value * (Scope.of(recipe, packs).data_parallel_size() or 1),
    )


def _leaves(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted path, value); an empty mapping is a value."""
    if prefix.count(".") > _MAX_DEPTH:
        place = f"{OVERRIDES}.{prefix[:60]}"
        raise ConfigError(f"{place}... lies more than {_MAX_DEPTH} sections deep. Remove it.", field=place)
    for name, value in section.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
