"""Pack sizes and topologies of a recipe's run, ranked by the tokens that each trains in a second, by estimate."""

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

#: Pack sizes that are compared, beside the recipe's own.
SIZES = tuple(1 << power for power in range(12, 18))
#: Tokens that a size may lose (0-1) beyond those that all lose, before it is ranked behind the others.
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

    recipe: SFTRecipe  #: that was asked about
    gpu: Gpu  #: kind of GPU
    num_gpus: int  #: of the run
    lengths: Lengths  #: what is known of the data
    candidates: tuple[Candidate, ...]  #: best first; at least one
    #: code of a rule -> layouts that it refuses, of those that were asked about, and what it says
    refused: Mapping[str, tuple[int, str]]
    not_fitting: tuple[int, ...]  #: pack sizes for which no layout fits into memory and batch, or is legal
    speed: Speed  #: the constants of the estimate

    @property
    def best(self) -> Candidate:
        """The first."""
        return self.candidates[0]

    @property
    def of_sizes(self) -> dict[int, Candidate | None]:
        """Pack size -> its best candidate, None where nothing fits; ascending."""
        found = {one.packed_sequence_size: one for one in reversed(self.candidates)}
        return {size: found.get(size) for size in sorted({*found, *self.not_fitting})}

    @property
    def fastest(self) -> float:
        """Tokens per second of the fastest candidate of all."""
        return max(one.tokens_per_s for one in self.candidates)

    @property
    def context_from(self) -> int | None:
        """Smallest pack size whose best candidate has context parallelism; None where none has."""
        return next((size for size, one in self.of_sizes.items() if one and one.layout.context > 1), None)

    @property
    def best_recipe(self) -> SFTRecipe:
        """The recipe with the values of the best."""
        return self.recipe.override(self.best.changes)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values with stable keys."""
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
    """Return how a recipe's model and data could be run on GPUs.

    Args:
        recipe: with the model; its batch says how many tokens a step takes.
        lengths: of the data.
        gpu: kind of GPU.
        num_gpus: how many.
        speed: constants of the estimate; those of a calibration, or the usual ones.
        sizes: pack sizes to compare; by default `SIZES` and the recipe's own.

    Raises:
        ConfigError: the model is not known, packs are not built before the run, or nothing fits.
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
    """Return the shape of the model of a recipe whose packs and topology can be planned.

    Raises:
        ConfigError: they cannot, or the model is not known.
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
