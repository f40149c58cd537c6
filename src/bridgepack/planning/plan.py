"""Ranks pack sizes and topologies of a recipe's run by estimated tokens per second."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bridgepack.config.errors import nearest_name, quote
from bridgepack.config.load import CatalogueEntry
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.starting import SHIPPED_MARKS, Wish, recipe_for, recipe_text, values_like
from bridgepack.data.reading.splits import splits_of
from bridgepack.errors import ConfigError
from bridgepack.planning.candidate import Candidate
from bridgepack.planning.estimate import Speed
from bridgepack.planning.fitting import Fit, fitted_batch
from bridgepack.planning.folders import entries_of, has_known_layers, of_folder, with_folder
from bridgepack.planning.layout import DEFAULT_GPU, Gpu, gpu_by_name
from bridgepack.planning.lengths import Lengths
from bridgepack.planning.limits import limits_of
from bridgepack.planning.online import OnlinePacking
from bridgepack.planning.search import Search
from bridgepack.planning.shape import ModelShape, model_shape
from bridgepack.records.messages import user_paths_in_errors
from bridgepack.records.results import Result

#: Pack sizes that are compared, in addition to the recipe's.
SIZES = tuple(1 << power for power in range(12, 18))
#: Share of tokens (0-1) that a size may lose more than the best size before it is ranked last.
_LOSS_ALLOWED = 0.01
#: Share of the tokens (0-1) from which on no size is proposed that loses it.
_MOST_LOST = 0.5
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
    #: what Megatron-Bridge 0.7 makes of the data if it packs at run time, with the best candidate's layout and size
    online: tuple[OnlinePacking, ...] = ()

    def headline(self) -> str:
        """Return what came out, in one line."""
        best, layout = self.best, self.best.layout
        sizes = f"TP {layout.tensor}, PP {layout.pipeline}, CP {layout.context}, EP {layout.expert}"
        return (
            f"{self.recipe.name} on {self.num_gpus} x {self.gpu.name}: best with packs of "
            f"{best.packed_sequence_size:,} tokens, {sizes}, about {best.tokens_per_s:,.0f} tokens/s per GPU"
        )

    @property
    def best(self) -> Candidate:
        """The best candidate."""
        return self.candidates[0]

    @property
    def of_sizes(self) -> dict[int, Candidate | None]:
        """Pack size -> its best candidate, or None if nothing fits; ascending."""
        fastest_of_size = {candidate.packed_sequence_size: candidate for candidate in reversed(self.candidates)}
        return {size: fastest_of_size.get(size) for size in sorted({*fastest_of_size, *self.not_fitting})}

    @property
    def fastest(self) -> float:
        """Tokens per second of the fastest candidate."""
        return max(candidate.tokens_per_s for candidate in self.candidates)

    @property
    def context_from(self) -> int | None:
        """Smallest pack size whose best candidate has context parallelism, or None."""
        return next((size for size, best in self.of_sizes.items() if best and best.layout.context > 1), None)

    @property
    def best_recipe(self) -> SFTRecipe:
        """The recipe with the values of the best candidate."""
        return self.recipe.override(self.best.changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values with stable keys."""
        candidates = [{**asdict(candidate), "changes": dict(candidate.changes)} for candidate in self.candidates]
        return {
            "name": self.recipe.name,
            "gpu": self.gpu.name,
            "num_gpus": self.num_gpus,
            "lengths": {"origin": self.lengths.origin, "num_sequences": len(self.lengths.runtime)},
            "speed": asdict(self.speed),
            "candidates": candidates,
            "refused": {code: {"num_layouts": count, "why": why} for code, (count, why) in self.refused.items()},
            "not_fitting": list(self.not_fitting),
            "online": [asdict(candidate) for candidate in self.online],
        }


def plan_recipe(
    recipe: SFTRecipe,
    lengths: Lengths,
    *,
    gpu: Gpu,
    num_gpus: int,
    speed: Speed | None = None,
    sizes: tuple[int, ...] | None = None,
    has_dynamic_context: bool = False,
) -> Plan:
    """Return a plan for running a recipe's model and data on GPUs.

    The recipe's batch section sets the tokens per step; `speed` comes from a calibration, and `sizes` are pack sizes to
    compare (default: `SIZES` and the recipe's). `has_dynamic_context` asks the installed megatron-core, too.

    Raises:
        ConfigError: the model is unknown, packs are not built before the run, or nothing fits.
    """
    shape, speed = shape_to_plan(recipe), speed or Speed()
    search = Search(recipe=recipe, shape=shape, lengths=lengths, gpu=gpu, num_gpus=num_gpus, speed=speed)
    pack_sizes = sizes or tuple(sorted({*SIZES, recipe.packing.packed_sequence_size}))
    best_of_size = {size: search.best_of(size) for size in pack_sizes}
    candidates = [plan for candidates_of_size in best_of_size.values() for plan in candidates_of_size]
    if not candidates:
        raise ConfigError(search.why_nothing(pack_sizes))
    least = min(plan.lost_fraction for plan in candidates)
    if least >= _MOST_LOST:
        raise ConfigError(_loses_most(recipe, candidates, least))
    candidates.sort(
        key=lambda plan: (
            plan.is_short,
            plan.lost_fraction > least + _LOSS_ALLOWED,
            -plan.tokens_per_s,
        )
    )
    return Plan(
        recipe=recipe,
        gpu=gpu,
        num_gpus=num_gpus,
        lengths=lengths,
        candidates=tuple(candidates),
        refused={code: (count, search.reasons[code]) for code, count in search.num_refused.most_common()},
        not_fitting=tuple(size for size, candidates_of_size in best_of_size.items() if not candidates_of_size),
        speed=speed,
        online=search.online(candidates[0], has_dynamic_context=has_dynamic_context),
    )


def _loses_most(recipe: SFTRecipe, candidates: Sequence[Candidate], least: float) -> str:
    action, size = recipe.preprocessing.over_long, max(candidate.packed_sequence_size for candidate in candidates)
    return (
        f"preprocessing.over_long is {action}, and packs of {size:,} tokens, the largest that fit, leave {least:.0%} "
        f"of the tokens untrained; allowed: less than {_MOST_LOST:.0%}. Set it to split or truncate, raise "
        "batch.tokens_per_step, or use more GPUs, so that larger packs fit."
    )


def shape_to_plan(recipe: SFTRecipe) -> ModelShape:
    """Return the shape of a recipe's model.

    Raises:
        ConfigError: the recipe's packs and topology cannot be planned, or the model is unknown.
    """
    if recipe.packing.mode != "offline":
        raise ConfigError(
            f"packing.mode is {recipe.packing.mode}; allowed: offline, as only then packs are planned before the run. "
            "Set it to offline.",
            field="packing.mode",
        )
    set_fields = [name for name in _OF_LAYOUTS if name in recipe.bridge_overrides.get("model", {})]
    if set_fields:
        raise ConfigError(
            f"bridge_overrides.model.{set_fields[0]} is set; allowed: not with a plan, which chooses it. Remove it, or "
            "set it in parallelism.",
            field=f"bridge_overrides.model.{set_fields[0]}",
        )
    return model_shape(recipe)


#: Data that a topology is planned for before any is known: packs of sequences of equal length, as many as a step takes.
_PER_PACK, _NUM_SEQUENCES = 16, 1 << 12


def new_recipe(wish: Wish, entries: Sequence[CatalogueEntry], fit: Callable[[SFTRecipe], Fit] = fitted_batch) -> str:
    """Return the YAML text of a new recipe; an entry of the catalogue for the same model is the starting point.

    `fit` returns the batch for the data.

    Raises:
        ConfigError: the model is unknown, or does not fit the GPUs or the length.
        DataError: a saved DatasetDict does not have one training split.
    """
    wish, note = with_splits(wish)
    wish = with_folder(wish)
    values, origin = _starting_values(wish, entries)
    fit_of_data = fit(recipe_for(wish, values))
    sections = {name: {**values.get(name, {}), **section} for name, section in fit_of_data.values.items()}
    if "batch" in sections:  # a recipe here may set packs per step
        sections["batch"].pop("global_batch_size", None)
    if fit_of_data.validation_fraction is not None:
        wish = replace(wish, validation_fraction=fit_of_data.validation_fraction)
    return recipe_text(wish, {**values, **sections}, origin + note, fit_of_data.comments)


def _starting_values(wish: Wish, entries: Sequence[CatalogueEntry]) -> tuple[dict[str, Any], str]:
    """Return the values of the catalogue's recipe that a new one starts from, or of a plan, and their origin in words.

    A model in a folder is planned where the catalogue's recipes for its sizes do not fit the wish.

    Raises:
        ConfigError: the model is unknown, or does not fit the GPUs or the length.
    """
    entries_of_model, is_folder = entries_of(entries, wish.model), Path(wish.model).is_dir()
    if entries_of_model:
        try:
            values, origin = values_like(entries_of_model, wish)
            return (of_folder(values, wish) if is_folder else values), origin
        except ConfigError:
            if not is_folder or not has_known_layers(wish.model):
                raise
    _check_names(wish, entries)
    values, estimated_gb = _plan_values(wish)
    return values, f"topology by an estimate of {estimated_gb:.0f} GB for each GPU; try it before you rely on it"


def with_splits(wish: Wish) -> tuple[Wish, str]:
    """Return a wish with the data's own held-out split as validation data, and what to say of it."""
    splits = splits_of(wish.data, "--data") if isinstance(wish.data, str) and not wish.validation else None
    if splits is None:
        return wish, ""
    train = splits.train[0] if len(splits.train) == 1 else splits.train
    if wish.sets:
        return replace(wish, data=train), f"; not used: the data's own split {splits.name}"
    return replace(wish, data=train, validation=splits.validation), f"; {splits.note}"


def _plan_values(wish: Wish) -> tuple[dict[str, Any], float]:
    """Return the values of the best plan, and its memory per GPU in GB."""
    values: dict[str, Any] = {"model": {"name": wish.model}, "tokenizer": {"name_or_path": wish.model}}
    recipe = recipe_for(wish, values)
    with user_paths_in_errors(lambda path: "--model" if path == "model.name" else path):
        model_shape(recipe)
    runtime = np.full(_NUM_SEQUENCES, max(wish.seq_length // _PER_PACK, 1))
    lengths = Lengths(runtime=runtime, share=1 / _NUM_SEQUENCES, origin="")
    gpu = gpu_by_name(DEFAULT_GPU)
    best = plan_recipe(recipe, lengths, gpu=gpu, num_gpus=wish.num_gpus, sizes=(wish.seq_length,)).best
    for path, value in best.changes.items():
        section, _, name = path.partition(".")
        if section == "bridge_overrides":
            model_overrides = values.setdefault(section, {}).setdefault("model", {})
            model_overrides[name.removeprefix("model.")] = value
        elif value is not None and (section in ("parallelism", "packing") or name == "recompute"):
            values[section] = {**values.get(section, {}), name: value}
    if limits_of(recipe).takes_one_pack:
        values["batch"] = {"tokens_per_step": best.global_batch_size * wish.seq_length}
    return values, best.memory.total_gb


def _check_names(wish: Wish, entries: Sequence[CatalogueEntry]) -> None:
    """Accept a model that the catalogue does not have where it can be one, with its tokenizer."""
    is_shipped = any(mark in wish.model for mark in SHIPPED_MARKS) and wish.model.endswith("_config")
    if "/" not in wish.model and not Path(wish.model).is_dir() and not is_shipped:
        ids = sorted({entry.recipe.tokenizer.name_or_path for entry in entries if entry.recipe and entry.recipe.model})
        names = {name.rpartition("/")[2].lower(): name for name in ids} | {entry.name: entry.name for entry in entries}
        nearest = nearest_name(wish.model.rpartition("/")[2].lower(), names)
        raise ConfigError(
            f"--model is {quote(wish.model)}; allowed: an id on the hub (org/name), a folder, a recipe of "
            "Megatron-Bridge or of the catalogue. "
            f"{f'Did you mean {names[nearest]}?' if nearest else 'Use one of these.'}"
        )
    if is_shipped and wish.tokenizer is None:
        raise ConfigError(
            f"--model is {quote(wish.model)}, which is not in the catalogue; its tokenizer is not known. "
            "Add --tokenizer with its id on the hub."
        )
