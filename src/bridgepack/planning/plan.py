"""Ranks pack sizes and topologies of a recipe's run by estimated tokens per second."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.planning.estimate import Speed
from bridgepack.planning.lengths import Lengths
from bridgepack.planning.machines import Gpu
from bridgepack.planning.search import Candidate, Search
from bridgepack.planning.shape import ModelShape, model_shape
from bridgepack.records.results import Result

#: Pack sizes that are compared, in addition to the recipe's.
SIZES = tuple(1 << power for power in range(12, 18))
#: Share of tokens (0-1) that a size may lose more than the best size before it is ranked last.
_LOSS_ALLOWED = 0.01
#: Settings of the host's model that a layout decides.
_OF_LAYOUTS = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
    "recompute_granularity",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan(Result):
    """How a recipe could be run, best first."""

    TABLE: ClassVar = "candidates"

    recipe: SFTRecipe  #: the recipe that is planned
    gpu: Gpu  #: kind of GPU
    num_gpus: int  #: number of GPUs of the run
    lengths: Lengths  #: sequence lengths of the data
    candidates: tuple[Candidate, ...]  #: best first; at least one
    #: code of a rule -> layouts that it refuses, of those that were asked about, and what it says
    refused: Mapping[str, tuple[int, str]]
    not_fitting: tuple[int, ...]  #: pack sizes without a layout that is legal and fits into memory and batch
    speed: Speed  #: the constants of the estimate

    @property
    def best(self) -> Candidate:
        """The best candidate."""
        return self.candidates[0]

    @property
    def of_sizes(self) -> dict[int, Candidate | None]:
        """Pack size -> its best candidate, or None if nothing fits; ascending."""
        found = {one.packed_sequence_size: one for one in reversed(self.candidates)}
        return {size: found.get(size) for size in sorted({*found, *self.not_fitting})}

    @property
    def fastest(self) -> float:
        """Tokens per second of the fastest candidate."""
        return max(one.tokens_per_s for one in self.candidates)

    @property
    def context_from(self) -> int | None:
        """Smallest pack size whose best candidate has context parallelism, or None."""
        return next((size for size, one in self.of_sizes.items() if one and one.layout.context > 1), None)

    @property
    def best_recipe(self) -> SFTRecipe:
        """The recipe with the values of the best candidate."""
        return self.recipe.override(self.best.changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values with stable keys."""
        candidates = [{**asdict(one), "changes": dict(one.changes)} for one in self.candidates]
        return {
            "name": self.recipe.name,
            "gpu": self.gpu.name,
            "num_gpus": self.num_gpus,
            "lengths": {"origin": self.lengths.origin, "num_sequences": len(self.lengths.runtime)},
            "speed": asdict(self.speed),
            "candidates": candidates,
            "refused": {code: {"num_layouts": count, "why": why} for code, (count, why) in self.refused.items()},
            "not_fitting": list(self.not_fitting),
        }


def plan_recipe(
    recipe: SFTRecipe,
    lengths: Lengths,
    *,
    gpu: Gpu,
    num_gpus: int,
    speed: Speed | None = None,
    sizes: tuple[int, ...] | None = None,
) -> Plan:
    """Return a plan for running a recipe's model and data on GPUs.

    Args:
        recipe: the recipe; its batch section sets the tokens per step.
        lengths: sequence lengths of the data.
        gpu: kind of GPU.
        num_gpus: number of GPUs.
        speed: constants of the estimate, from a calibration or the defaults.
        sizes: pack sizes to compare (default: `SIZES` and the recipe's).

    Raises:
        ConfigError: the model is unknown, packs are not built before the run, or nothing fits.
    """
    shape, speed = shape_to_plan(recipe), speed or Speed()
    search = Search(recipe=recipe, shape=shape, lengths=lengths, gpu=gpu, num_gpus=num_gpus, speed=speed)
    wanted = sizes or tuple(sorted({*SIZES, recipe.packing.packed_sequence_size}))
    found = {size: search.best_of(size) for size in wanted}
    candidates = [one for ones in found.values() for one in ones]
    if not candidates:
        raise ConfigError(search.why_nothing(wanted))
    least = min(one.lost_fraction for one in candidates)
    candidates.sort(key=lambda one: (one.is_short, one.lost_fraction > least + _LOSS_ALLOWED, -one.tokens_per_s))
    return Plan(
        recipe=recipe,
        gpu=gpu,
        num_gpus=num_gpus,
        lengths=lengths,
        candidates=tuple(candidates),
        refused={code: (count, search.reasons[code]) for code, count in search.refused.most_common()},
        not_fitting=tuple(size for size, ones in found.items() if not ones),
        speed=speed,
    )


def shape_to_plan(recipe: SFTRecipe) -> ModelShape:
    """Return the shape of a recipe's model.

    Raises:
        ConfigError: the recipe's packs and topology cannot be planned, or the model is unknown.
    """
    if recipe.packing.mode != "offline":
        raise ConfigError(
            f"packing.mode is {recipe.packing.mode}; allowed: offline, as only then packs are planned before the run. "
            "Set it to offline."
        )
    stated = [name for name in _OF_LAYOUTS if name in recipe.bridge_overrides.get("model", {})]
    if stated:
        raise ConfigError(
            f"bridge_overrides.model.{stated[0]} is set; allowed: not with a plan, which chooses it. Remove it, or "
            "set it in parallelism."
        )
    return model_shape(recipe)
