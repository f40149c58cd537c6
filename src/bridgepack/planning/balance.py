"""The balance record of a recipe's packs, and how long ranks wait for each other in a run."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.bridge.replay_settings import replay_settings
from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.packing import BalanceConfig
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.recipe.recorded import recorded_recipe_values
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.manifest import read_manifest
from bridgepack.data.artifact.plan import iter_plan_columns, plan_path
from bridgepack.data.packing.balance import balanced_order, pack_costs, slots_of, straggler_ratios
from bridgepack.data.packing.order import seeded_order
from bridgepack.errors import ArtifactError, ConfigError
from bridgepack.geometry import IntArray, aligned_runtime_lengths
from bridgepack.host import release_for
from bridgepack.planning.estimate import cost_of
from bridgepack.planning.shape import ModelShape, model_shape, shape_of_run
from bridgepack.proof.packs import recorded_recipe
from bridgepack.records import TRAIN, BalanceRecord, RunConfig, StepRatios, Waiting
from bridgepack.records.messages import join, say, user_paths_in_errors
from bridgepack.replay.settings import ReplaySettings

#: Cost of a token, and windows, as in `BalanceRecord`.
Cost = tuple[int, tuple[tuple[int, float], ...]]
#: Number of packs used if it does not matter.
_MANY = 1 << 24
#: Share of the steps (0-1) that are at most as slow as `StepRatios.p95`.
_MOST_STEPS = 0.95
_DEFAULT_WINDOW = BalanceConfig().window_batches
#: Rounding of the shares of layers with windows, so that the last bit of a float cannot change an order.
_DIGITS = 4


def balance_for(recipe: SFTRecipe) -> BalanceRecord | None:
    """Return the balance record of a recipe's packs, or None if packing.balance.kind is none.

    Raises:
        ConfigError: the run's ranks cannot be balanced, or the cost of a token is unknown.
    """
    balance = recipe.packing.balance
    if balance.kind == "none":
        return None
    if recipe.parallelism.num_gpus is None:
        raise ConfigError(
            "parallelism.num_gpus is not set; allowed with packing.balance: the GPUs of the run, as packs are balanced "
            "for its ranks. Set it, or set packing.balance.kind to none.",
            field="parallelism.num_gpus",
        )
    with user_paths_in_errors(lambda path: config_of_recipe(recipe).user_path(path)):
        settings = replay_settings(recipe, num_packs={TRAIN: _MANY}, world_size=None, version=recipe.release.bridge)
        why_not = _why_not(settings)
        if why_not is not None:
            raise ConfigError(join([why_not, "Set packing.balance.kind to none."], ". "))
    if balance.kind == "within_batch" and settings.global_batch_size == settings.topology.data_parallel_size:
        raise ConfigError(
            f"packing.balance.kind is within_batch, and each of the {settings.global_batch_size} packs of a step has a "
            "rank of its own; allowed: none, across_batches. Set it to across_batches, or raise "
            "batch.global_batch_size.",
            field="packing.balance.kind",
        )
    return _record(recipe, settings, _cost_of(recipe))


def balance_of_repack(artifact: Path, changes: Mapping[str, Any]) -> BalanceRecord | None:
    """Return the balance record of an artifact's packs after changes of its recipe, as `balance_for`.

    Raises:
        ArtifactError: the folder is not an artifact.
        ConfigError: as `balance_for`, or a change is impossible.
    """
    return balance_for(load_recipe(recorded_recipe_values(read_manifest(artifact)), changes))


def waiting_in(
    artifact: Artifact, source: SFTRecipe | RunConfig, *, world_size: int | None = None, version: str | None = None
) -> Waiting:
    """Return how long ranks wait for each other in the first epoch of a run over an artifact.

    `source` is the run, as a recipe or as settings of the host; `world_size` its GPUs and `version` its Megatron-Bridge
    (default: those of `source`).

    Raises:
        ConfigError: the order of the packs or the cost of a token is unknown.
        ArtifactError: the artifact has no readable plan.
    """
    manifest = artifact.manifest
    num_packs = {split.name: split.statistics.num_packs for split in manifest.splits}
    version = version or release_for(source.bridge_version).bridge
    settings = replay_settings(source, num_packs=num_packs, world_size=world_size, version=version)
    why_not = _why_not(settings)
    if why_not is not None:
        raise ConfigError(why_not)
    record = _record(source, settings, _cost_of_run(source, artifact))
    costs = pack_costs(
        *_lengths(artifact, settings.num_packs),
        token_cost=record.token_cost,
        windows=record.windows,
        packed_sequence_size=manifest.packed_sequence_size,
        has_tail=manifest.pad_seq_to_mult == 1,
    )
    stages, build_record = settings.topology.pipeline_model_parallel_size, manifest.balance
    measure_ratios = partial(straggler_ratios, num_stages=stages, has_experts=_has_experts(source))
    return _waiting(costs, measure_ratios, record, build_record, settings.num_steps)


def _waiting(
    costs: IntArray,
    measure_ratios: Callable[[IntArray, IntArray], npt.NDArray[Any]],
    run: BalanceRecord,
    build_record: BalanceRecord | None,
    num_steps: int | None,
) -> Waiting:
    slots, matches = slots_of(run, len(costs)), run.matches_micro_batches

    def ratios(order: IntArray) -> StepRatios:
        step_ratios = measure_ratios(costs[order], slots)
        p95 = float(np.quantile(step_ratios, _MOST_STEPS))
        return StepRatios(mean=float(step_ratios.mean()), p95=p95, worst=float(step_ratios.max()))

    def balanced_ratios(window_batches: int) -> StepRatios:
        return ratios(
            balanced_order(
                costs, slots, window_batches=window_batches, matches_micro_batches=matches, begins_cheap=matches
            )
        )

    return Waiting(
        run=run,
        built=build_record,
        num_steps=len(slots),
        share_of_run=min(len(slots) / (num_steps or len(slots)), 1.0),
        as_built=ratios(np.arange(len(costs))),
        shuffled=ratios(seeded_order(len(costs), run.seed)),
        within_batch=balanced_ratios(1),
        across_batches=balanced_ratios(_DEFAULT_WINDOW),
    )


def _record(source: SFTRecipe | RunConfig, settings: ReplaySettings, cost: Cost) -> BalanceRecord:
    balance = source.packing.balance if isinstance(source, SFTRecipe) else BalanceConfig()
    return BalanceRecord(
        kind=balance.kind,
        window_batches=balance.window_batches if balance.kind == "across_batches" else 1,
        seed=balance.seed,
        token_cost=cost[0],
        windows=cost[1],
        matches_micro_batches=_has_experts(source) or settings.topology.pipeline_model_parallel_size > 1,
        begins_cheap=_has_experts(source) or settings.topology.pipeline_model_parallel_size > 1,
        version=settings.version,
        loader=settings.loader,
        loader_seed=settings.seed,
        data_sharding=settings.data_sharding,
        data_parallel_size=settings.topology.data_parallel_size,
        global_batch_size=settings.global_batch_size,
    )


def _has_experts(source: SFTRecipe | RunConfig) -> bool:
    """Return whether a run spreads experts over ranks."""
    if isinstance(source, SFTRecipe):
        return source.parallelism.expert_model_parallel_size > 1
    model = source.values.get("model")
    return isinstance(model, Mapping) and model.get("expert_model_parallel_size") not in (None, 1)


def _why_not(settings: ReplaySettings) -> str | None:
    num_ranks = settings.topology.data_parallel_size
    for is_refused, value_text, allowed_values in (
        (settings.micro_batch_size != 1, f"batch.micro_batch_size is {settings.micro_batch_size}", "1"),
        (
            settings.max_samples is not None,
            say("{dataset.max_train_samples} is {number}", number=settings.max_samples),
            "null",
        ),
        (num_ranks == 1, "the run has one data-parallel rank", "at least 2, as one waits for no other"),
        (
            settings.global_batch_size % num_ranks > 0,
            f"batch.global_batch_size is {settings.global_batch_size}",
            f"multiples of the data-parallel size, {num_ranks}",
        ),
    ):
        if is_refused:
            return say("{found}; allowed with packing.balance: {allowed}", found=value_text, allowed=allowed_values)
    return None


def _cost_of_run(source: SFTRecipe | RunConfig, artifact: Artifact) -> Cost:
    """Return the cost of a token in a run, from its recipe or model, else from the packs' balance record or recipe."""
    build_record = artifact.manifest.balance
    try:
        return _cost_of(source) if isinstance(source, SFTRecipe) else _cost_of_config(source, artifact)
    except ConfigError:
        if build_record is None:
            raise
        return build_record.token_cost, build_record.windows


def _cost_of_config(config: RunConfig, artifact: Artifact) -> Cost:
    """Return the cost of a token that the packs' recipe states, else that of the config's model, else the recipe's."""
    recipe = recorded_recipe(artifact, {})
    if recipe.packing.balance.token_cost is not None:
        return _cost_of(recipe)
    try:
        return _cost_in_pairs(shape_of_run(config))
    except ConfigError as error:
        try:
            return _cost_of(recipe)
        except ConfigError:
            raise ConfigError(f"{error} Or name model.name in the recipe of the packs.") from None


def _cost_of(recipe: SFTRecipe) -> Cost:
    """Return the cost of a token relative to a pair of tokens (1), and the shares of layers with windows."""
    if recipe.packing.balance.token_cost is not None:
        return recipe.packing.balance.token_cost, ()
    try:
        shape = model_shape(recipe)
    except ConfigError as error:
        raise ConfigError(f"{error} Or set packing.balance.token_cost.") from None
    return _cost_in_pairs(shape)


def _cost_in_pairs(shape: ModelShape) -> Cost:
    cost = cost_of(shape)
    pair = cost.per_square + sum(operations for _, operations in cost.windows)
    if not pair:
        raise ConfigError(
            "no layer of model.name attends to other tokens, so all packs cost the same; allowed with "
            "packing.balance: a model with attention. Set packing.balance.kind to none."
        )
    windows = tuple((window, round(operations / pair, _DIGITS)) for window, operations in cost.windows)
    return max(round(cost.per_token / pair), 1), windows


def _lengths(artifact: Artifact, num_packs: int) -> tuple[IntArray, IntArray]:
    """Return the physical runtime lengths of the training sequences in pack order, and the offsets of the packs."""
    counts, parts, is_known = np.zeros(num_packs, np.int64), list[IntArray](), True
    for packs, lengths in iter_plan_columns(artifact, TRAIN, ("pack", "runtime_length")):
        is_known &= bool(((packs >= 0) & (packs < num_packs)).all())
        counts += np.bincount(packs, minlength=num_packs) if is_known else 0
        parts.append(lengths)
    if not (is_known and counts.all()):
        raise ArtifactError(
            f"{plan_path(artifact, TRAIN)} does not name the {num_packs:,} packs that manifest.json has. Build the "
            "artifact again."
        )
    offsets = np.concatenate(([0], np.cumsum(counts)))
    return aligned_runtime_lengths(np.concatenate(parts), artifact.manifest.pad_seq_to_mult), offsets
